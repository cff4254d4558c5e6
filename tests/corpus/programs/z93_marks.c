/* Client of the marks daemon: asks for the stimulus marks of one recording. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int marks_connect(const char *address)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0)
        return -errno;
    strncpy(name.sun_path, address, sizeof name.sun_path - 1);
    if (connect(fd, (struct sockaddr *)&name, sizeof name) < 0) {
        int e = errno;
        close(fd);
        return -e;
    }
    return fd;
}

static int marks_ready(int fd, int seconds)
{
    struct timeval limit = { .tv_sec = seconds };
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(fd, &readable);
    return select(fd + 1, &readable, NULL, NULL, &limit);
}

int marks_fetch(const char *address, int32_t recording, int32_t *out, int count)
{
    char *p = (char *)out;
    size_t left = count * sizeof *out;
    int fd = marks_connect(address);
    if (fd < 0)
        return fd;
    if (write(fd, &recording, sizeof recording) != sizeof recording) {
        close(fd);
        return -EIO;
    }
    while (left > 0) {
        ssize_t n;
        if (marks_ready(fd, 5) <= 0) {
            close(fd);
            return -ETIMEDOUT;
        }
        n = read(fd, p, left);
        if (n <= 0) {
            close(fd);
            return -EIO;
        }
        p += n;
        left -= n;
    }
    close(fd);
    return count;
}
