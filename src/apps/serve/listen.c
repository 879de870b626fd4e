/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/listen.h"

#include <errno.h>
#include <string.h>

#include "apps/serve/privileges.h"
#include "apps/serve/systemd.h"

int listen_address(const struct conf_address *a, struct net_addr *out)
{
    return net_addr_literal(a->host, a->port, out);
}

const char *listen_reason(const struct net_addr *addr, int error, char *words, size_t n)
{
    bool file = addr->any.sa_family == AF_UNIX;

    if (file && error == EEXIST)
        return "what is there is no socket; Weir replaces only sockets";
    if (file && error == ENOENT)
        return "its folder does not exist";
    if (!file && error == EACCES)
        return "Permission denied (a port below 1024 needs root, CAP_NET_BIND_SERVICE, or a socket "
               "of systemd's)";
    return strerror_r(error, words, n);
}

static int refuse(struct buf *why, const char *key, struct slice name, const char *what, int rc)
{
    buf_put_str(why, key);
    buf_put_slice(why, name);
    buf_put_str(why, what);
    buf_put_char(why, '\n');
    return rc;
}

static int inherit(const struct conf_address *a, struct net_listen_at *out, struct buf *why)
{
    static const char key[] = "listeners.address: systemd:";

    out->inherited = systemd_listener(a->host);
    if (out->inherited < 0)
        return refuse(why, key, a->host,
                      " was not passed by the service manager (FileDescriptorName= of the socket "
                      "unit, LISTEN_FDNAMES)",
                      WEIR_E_NOTFOUND);
    int rc = net_listen_inherit(out->inherited, &out->addr);
    return rc ? refuse(why, key, a->host, " is not a listening stream socket", rc) : 0;
}

int listen_at(const struct conf_listener *l, struct net_listen_at *out, struct buf *why)
{
    *out = (struct net_listen_at){
        .inherited = -1, .rights = {.mode = l->socket_mode, .uid = (uid_t)-1, .gid = (gid_t)-1}};
    if (l->address.kind == CONF_ADDRESS_INHERITED)
        return inherit(&l->address, out, why);
    if (l->socket_user.p && privileges_user(l->socket_user.p, &out->rights.uid, NULL) != 0)
        return refuse(why, "listeners.socket_user: ", l->socket_user,
                      " is not known on this machine", WEIR_E_NOTFOUND);
    if (l->socket_group.p && privileges_group(l->socket_group.p, &out->rights.gid) != 0)
        return refuse(why, "listeners.socket_group: ", l->socket_group,
                      " is not known on this machine", WEIR_E_NOTFOUND);
    return listen_address(&l->address, &out->addr);
}
