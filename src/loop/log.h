/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Log lines on stderr: "2026-12-01T09:00:00.123Z warn proxy: text key=value". One write() a line, any thread.
 * Control characters in the text are escaped, so a line stays one line. Never log secrets, prompts or header values.
 */
#ifndef WEIR_LOOP_LOG_H
#define WEIR_LOOP_LOG_H

#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/** Lines below this level are dropped; default LOG_INFO. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/** @param room who speaks ("proxy"). Lines above 1,024 bytes are cut. */
void log_at(enum log_level level, const char *room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_debug(room, ...)                                                                       \
    do {                                                                                           \
        if (log_get_level() <= LOG_DEBUG)                                                          \
            log_at(LOG_DEBUG, room, __VA_ARGS__);                                                  \
    } while (0)
#define log_info(room, ...)  log_at(LOG_INFO, room, __VA_ARGS__)
#define log_warn(room, ...)  log_at(LOG_WARN, room, __VA_ARGS__)
#define log_error(room, ...) log_at(LOG_ERROR, room, __VA_ARGS__)

/** At most one line per interval from one place; says how many were left out. `last` and `missed` are the place's own. */
struct log_limit {
    _Atomic uint64_t last_ns;
    _Atomic uint64_t missed;
};
/** @return non-zero when a line may be written now; *missed gets the number dropped since. */
int log_limit_pass(struct log_limit *l, uint64_t now_ns, uint64_t interval_ns, uint64_t *missed);

enum { LOG_MISSED_TEXT = 48 };
/** For the end of such a line: " (said N times less)", nothing when none was dropped. @return text. */
const char *log_missed(uint64_t missed, char text[LOG_MISSED_TEXT]);

#endif /* WEIR_LOOP_LOG_H */
