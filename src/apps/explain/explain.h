/* SPDX-License-Identifier: Apache-2.0 */
/** @file `weir explain`: ask a running gateway who would get a request, and why. */
#ifndef WEIR_APPS_EXPLAIN_EXPLAIN_H
#define WEIR_APPS_EXPLAIN_EXPLAIN_H

#include <stdio.h>

#include <jansson.h>

/** argv[0] is "explain". @return 0 somebody would be chosen, 3 nobody, 2 a wrong command line or question, 1 no answer. */
int explain_main(int argc, char **argv);

/** The answer of POST /api/v1/explain as a table. */
void explain_table(const json_t *answer, FILE *to);

#endif /* WEIR_APPS_EXPLAIN_EXPLAIN_H */
