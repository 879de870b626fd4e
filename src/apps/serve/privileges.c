/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/privileges.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/num.h"
#include "loop/log.h"

enum { DATABASE_BYTES = 16384 };

int privileges_user(const char *name, uid_t *uid, gid_t *gid)
{
    char text[DATABASE_BYTES];
    struct passwd entry;
    struct passwd *found = NULL;
    uint64_t number;

    bool numeric = num_u64(slice_str(name), &number) == 0 && number < UINT32_MAX;
    if (numeric)
        (void)getpwuid_r((uid_t)number, &entry, text, sizeof(text), &found);
    else
        (void)getpwnam_r(name, &entry, text, sizeof(text), &found);
    if (!found && !numeric)
        return WEIR_E_NOTFOUND;
    /* A number without an entry is fine, as in containers: its group is the same number. */
    *uid = found ? found->pw_uid : (uid_t)number;
    if (gid)
        *gid = found ? found->pw_gid : (gid_t)number;
    return 0;
}

int privileges_group(const char *name, gid_t *gid)
{
    char text[DATABASE_BYTES];
    struct group entry;
    struct group *found = NULL;
    uint64_t number;

    if (num_u64(slice_str(name), &number) == 0 && number < UINT32_MAX) {
        *gid = (gid_t)number;
        return 0;
    }
    if (getgrnam_r(name, &entry, text, sizeof(text), &found) != 0 || !found)
        return WEIR_E_NOTFOUND;
    *gid = found->gr_gid;
    return 0;
}

void privileges_hide_memory(void)
{
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        log_warn("serve", "cannot switch core dumps off: %s", strerror(errno));
}

static int complain(const char *what, const char *who)
{
    log_error("serve", "%s %s: %s", what, who, strerror(errno));
    return WEIR_E_DENIED;
}

static int become(const char *user, const char *group)
{
    uid_t uid = getuid();
    gid_t gid = getgid();

    if (user && privileges_user(user, &uid, &gid) != 0) {
        log_error("serve", "user: %s is not known on this machine", user);
        return WEIR_E_NOTFOUND;
    }
    if (group && privileges_group(group, &gid) != 0) {
        log_error("serve", "group: %s is not known on this machine", group);
        return WEIR_E_NOTFOUND;
    }
    if (geteuid() != 0) {
        if (uid == geteuid() && gid == getegid())
            return 0;
        log_error("serve", "user and group need a start as root; leave them out");
        return WEIR_E_DENIED;
    }
    if (!user || initgroups(user, gid) != 0)
        if (setgroups(1, &gid) != 0)
            return complain("cannot set the groups of", user ? user : group);
    if (setresgid(gid, gid, gid) != 0)
        return complain("cannot become group", group ? group : user);
    if (setresuid(uid, uid, uid) != 0)
        return complain("cannot become user", user ? user : "root");
    if (uid != 0 && setuid(0) == 0) {
        log_error("serve", "user: root was given up, but came back");
        return WEIR_E_DENIED;
    }
    return 0;
}

/* All of them, in every set that the kernel keeps for later. */
static int drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};

    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &head, none) != 0)
        return complain("cannot drop", "capabilities");
    return 0;
}

void privileges_give(int fd, const char *user)
{
    struct stat st;
    uid_t uid;

    if (fd < 0 || !user || geteuid() != 0 || privileges_user(user, &uid, NULL) != 0 ||
        fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid == uid)
        return;
    if (fchown(fd, uid, (gid_t)-1) != 0)
        log_warn("serve",
                 "logging.access: cannot be given to user %s, who cannot open it again: %s", user,
                 strerror(errno));
}

int privileges_drop(const char *user, const char *group)
{
    if (user || group) {
        int rc = become(user, group);
        if (rc)
            return rc;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return complain("cannot set", "no_new_privs");
    /* Changing the user switched it on again, by the system's default. */
    privileges_hide_memory();
    if (geteuid() == 0) {
        log_warn("serve", "running as root: give it a user of its own (user: in the configuration, "
                          "or User= in a unit)");
        return 0;
    }
    return drop_capabilities();
}
