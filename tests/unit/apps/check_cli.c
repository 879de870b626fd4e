/* SPDX-License-Identifier: Apache-2.0 */
/* `weir check` alone, for tests. */
#include "apps/check/check.h"

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
