/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

const char *err_text(int code)
{
    switch (code) {
    case 0:
        return "ok";
#define WEIR_ERROR_CASE(name, number, text)                                                        \
    case WEIR_E_##name:                                                                            \
        return text;
        WEIR_ERRORS(WEIR_ERROR_CASE)
#undef WEIR_ERROR_CASE
    default:
        return "unknown error";
    }
}
