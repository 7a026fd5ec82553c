/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target once over each file given as an argument, for compilers
 * that bring no fuzzing engine. Whatever a target finds, it ends by a signal.
 */
#include "tests/harness/fuzz_input.h"

#include "vmm/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static int run_file(const char *path)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    CLEANUP_FREE uint8_t *data = NULL;
    struct stat st;
    int rc = -EIO;

    if (fd < 0 || fstat(fd, &st) < 0)
        return neg_errno();
    /* Exactly as large as the input: a read past its end is seen. */
    data = malloc((size_t)st.st_size + (st.st_size == 0));
    if (!data)
        return -ENOMEM;
    if (st.st_size > 0)
        rc = util_pread_full(fd, data, (size_t)st.st_size, 0);
    if (st.st_size > 0 && rc)
        return rc;
    return LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int rc = run_file(argv[i]);

        if (rc) {
            fprintf(stderr, "%s: cannot read it (%d); give a seed file\n",
                    argv[i], rc);
            return 1;
        }
    }
    printf("%s: %d inputs\n", argv[0], argc - 1);
    return 0;
}
