/* SPDX-License-Identifier: Apache-2.0 */
/* Unix socket files: their rights, the stale ones that a crash leaves, and their removal. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/listener.h"

enum { UNIX_BACKLOG = 4096 };

/* A file in the way: is it a socket that nobody answers? @return 0 when it was removed, or an errno. */
static int remove_stale(const struct net_addr *addr)
{
    struct stat st;

    if (lstat(addr->un.sun_path, &st) != 0)
        return errno == ENOENT ? 0 : errno;
    if (!S_ISSOCK(st.st_mode))
        return EEXIST;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int error = connect(fd, &addr->any, addr->len) == 0 ? 0 : errno;
    close(fd);
    /* A full backlog (EAGAIN) and a refusal by rights (EACCES) are somebody. */
    if (error != ECONNREFUSED)
        return error == EACCES ? error : EADDRINUSE;
    return unlink(addr->un.sun_path) == 0 || errno == ENOENT ? 0 : errno;
}

int net_listen_unix(const struct net_addr *addr,
                    const struct net_unix_rights *rights,
                    int *out,
                    struct net_unix_file *file)
{
    const char *path = addr->un.sun_path;
    int held = -1;

    int error = remove_stale(addr);
    if (error) {
        errno = error;
        return WEIR_E_IO;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return WEIR_E_IO;
    /* The file is made with the descriptor's mode, less the umask: so it is never wider than asked for. */
    bool ok = fchmod(fd, rights->mode) == 0 && bind(fd, &addr->any, addr->len) == 0;
    bool bound = ok;
    if (ok && (rights->uid != (uid_t)-1 || rights->gid != (gid_t)-1))
        ok = lchown(path, rights->uid, rights->gid) == 0;
    if (ok)
        held = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    ok = ok && held >= 0 && chmod(path, rights->mode) == 0 && listen(fd, UNIX_BACKLOG) == 0;
    if (!ok) {
        error = errno;
        if (bound)
            unlink(path);
        if (held >= 0)
            close(held);
        close(fd);
        errno = error;
        return WEIR_E_IO;
    }
    *file = (struct net_unix_file){.addr = *addr, .fd = held};
    *out = fd;
    return 0;
}

void net_unix_remove(struct net_unix_file *file)
{
    struct stat now;
    struct stat ours;

    if (!file->addr.len)
        return;
    if (lstat(file->addr.un.sun_path, &now) == 0 && fstat(file->fd, &ours) == 0 &&
        now.st_dev == ours.st_dev && now.st_ino == ours.st_ino)
        unlink(file->addr.un.sun_path);
    close(file->fd);
    file->addr.len = 0;
}

int net_listen_inherit(int fd, struct net_addr *bound)
{
    int on = 0;
    int type = 0;
    socklen_t n = sizeof(on);

    bound->len = net_addr_room();
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) != 0 || !on)
        return WEIR_E_INVALID;
    n = sizeof(type);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) != 0 || type != SOCK_STREAM)
        return WEIR_E_INVALID;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || getsockname(fd, &bound->any, &bound->len) != 0)
        return WEIR_E_INVALID;
    int family = bound->any.sa_family;
    return family == AF_INET || family == AF_INET6 || family == AF_UNIX ? 0 : WEIR_E_INVALID;
}

int net_listen_again(int fd, int *out)
{
    *out = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return *out < 0 ? WEIR_E_IO : 0;
}
