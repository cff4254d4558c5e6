// One thread crashes while all others wait, each in the same kind of wait: a server whose main thread sits in accept(), a trainer whose
// main thread joins its workers. A thread that wakes up, for any reason, ends the process with status 0, as programs do that take EINTR for
// the request to stop. The process must die of the crash.
//
// waits KIND [THREADS [DEATH [not-dumpable]]]: THREADS wait, the main thread among them (1); one more dies, of DEATH (null).
#include <aio.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "common.h"

#define LONG_SECONDS 1000
enum { kMaxThreads = 1024 };

static const struct timespec kLong = {LONG_SECONDS, 0};
static int fds[2];
static int one;  // descriptor or identifier of the kinds that need a single one
static char buffer[1 << 16];
static sem_t semaphore;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sigset_t usr1;
static atomic_int word;
static pthread_t sleeper;
static char name[64];

static struct timespec later(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec += LONG_SECONDS;
  return now;
}

static void* sleeps(void* nothing) {
  for (;;) pause();
  return nothing;
}

// System V objects outlive their process: a parent removes them, and ends as its child did.
static void outlived_by_parent(void (*remove_it)(void)) {
  pid_t child = fork();
  if (child == 0) return;
  int status;
  while (waitpid(child, &status, 0) != child) continue;
  remove_it();
  if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
}

static void remove_queue(void) { msgctl(one, IPC_RMID, NULL); }
static void remove_semaphores(void) { semctl(one, 0, IPC_RMID); }

static void no_preparation(void) {}
static void with_pipe(void) { must(pipe(fds) == 0, "pipe"); }
static void with_full_pipe(void) {
  with_pipe();
  fcntl(fds[1], F_SETFL, O_NONBLOCK);
  while (write(fds[1], buffer, sizeof buffer) > 0) continue;
  fcntl(fds[1], F_SETFL, 0);
}
static void with_sockets(void) { must(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair"); }
static void with_listener(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};  // without a name: the kernel gives it one
  must((one = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0, "socket");
  must(bind(one, (struct sockaddr*)&address, sizeof(sa_family_t)) == 0 && listen(one, 1) == 0, "listen");
}
static void with_epoll(void) {
  with_pipe();
  struct epoll_event event = {.events = EPOLLIN};
  must((one = epoll_create1(0)) >= 0 && epoll_ctl(one, EPOLL_CTL_ADD, fds[0], &event) == 0, "epoll");
}
static void with_eventfd(void) { must((one = eventfd(0, 0)) >= 0, "eventfd"); }
static void with_timerfd(void) {
  struct itimerspec when = {.it_value = kLong};
  must((one = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0 && timerfd_settime(one, 0, &when, NULL) == 0, "timerfd");
}
static void with_signalfd(void) { must((one = signalfd(-1, &usr1, 0)) >= 0, "signalfd"); }
static void with_inotify(void) { must((one = inotify_init1(0)) >= 0, "inotify"); }
static void with_fifo(void) {
  snprintf(name, sizeof name, "fifo.%d", getpid());
  must(mkfifo(name, 0600) == 0, "mkfifo");
}
static void with_semaphore(void) { sem_init(&semaphore, 0, 0); }
static void with_held_lock(void) { pthread_mutex_lock(&held); }
static void* holds_rwlock(void* held_it) {
  pthread_rwlock_wrlock(&rwlock);
  atomic_store((atomic_int*)held_it, 1);
  return sleeps(NULL);
}
static void with_held_rwlock(void) {  // by another thread: the owner itself would get EDEADLK
  pthread_create(&sleeper, NULL, holds_rwlock, &word);
  while (!atomic_load(&word)) usleep(200);
}
static void with_barrier(void) { pthread_barrier_init(&barrier, NULL, kMaxThreads + 1); }
static void with_sleeper(void) { pthread_create(&sleeper, NULL, sleeps, NULL); }
static void with_message_queue(void) {
  must((one = msgget(IPC_PRIVATE, 0600)) >= 0, "msgget");
  outlived_by_parent(remove_queue);
}
static void with_semaphore_set(void) {
  must((one = semget(IPC_PRIVATE, 1, 0600)) >= 0, "semget");
  outlived_by_parent(remove_semaphores);
}
static void with_mqueue(void) {
  snprintf(name, sizeof name, "/pytracer-test.%d", getpid());
  must((one = mq_open(name, O_CREAT | O_EXCL | O_RDONLY, 0600, NULL)) >= 0, "mq_open");
  mq_unlink(name);
}
static void with_child(void) {
  pid_t parent = getpid();
  if (fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (getppid() == parent) pause();  // it may have died before
  _exit(0);
}
static void with_locked_file(void) { must((fds[0] = open(".", O_RDONLY | O_DIRECTORY)) >= 0 && flock(fds[0], LOCK_EX) == 0, "flock"); }
static void with_aio_context(void) {
  static aio_context_t context;
  must(syscall(SYS_io_setup, 4, &context) == 0, "io_setup");
  memcpy(buffer, &context, sizeof context);
}

static void wait_pause(void) { pause(); }
static void wait_sigsuspend(void) {
  sigset_t none;
  sigemptyset(&none);
  sigsuspend(&none);
}
static void wait_sleep(void) { sleep(LONG_SECONDS); }
static void wait_nanosleep(void) { nanosleep(&kLong, NULL); }
static void wait_clock_nanosleep(void) {
  struct timespec until = later();
  clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL);
}
static void wait_poll(void) { poll(NULL, 0, LONG_SECONDS * 1000); }
static void wait_ppoll(void) {
  struct pollfd readable = {fds[0], POLLIN, 0};
  ppoll(&readable, 1, &kLong, NULL);
}
static void wait_select(void) {
  struct timeval timeout = {LONG_SECONDS, 0};
  select(0, NULL, NULL, NULL, &timeout);
}
static void wait_pselect(void) {
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(fds[0], &readable);
  pselect(fds[0] + 1, &readable, NULL, NULL, &kLong, NULL);
}
static void wait_epoll_wait(void) {
  struct epoll_event event;
  epoll_wait(one, &event, 1, -1);
}
static void wait_epoll_pwait(void) {
  struct epoll_event event;
  sigset_t none;
  sigemptyset(&none);
  epoll_pwait(one, &event, 1, LONG_SECONDS * 1000, &none);
}
static void read_one(int fd) {
  char room[256];
  if (read(fd, room, sizeof room) < 0) return;
}
static void wait_read(void) { read_one(fds[0]); }
static void wait_read_one(void) { read_one(one); }
static void wait_write(void) {
  if (write(fds[1], buffer, sizeof buffer) < 0) return;
}
static void wait_open(void) { (void)!open(name, O_RDONLY); }
static void wait_accept(void) { accept(one, NULL, NULL); }
static void wait_recv(void) { recv(fds[0], (char[16]){0}, 16, 0); }
static void wait_recvmsg(void) {
  char room[16];
  struct iovec piece = {room, sizeof room};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
  recvmsg(fds[0], &message, 0);
}
static void wait_recv_with_timeout(void) {  // such a read is not restarted, not even with SA_RESTART
  struct timeval timeout = {LONG_SECONDS, 0};
  setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  wait_recv();
}
static void wait_sem_wait(void) { sem_wait(&semaphore); }
static void wait_sem_timedwait(void) {
  struct timespec until = later();
  sem_timedwait(&semaphore, &until);
}
static void wait_cond_wait(void) {
  pthread_mutex_lock(&mutex);
  pthread_cond_wait(&condition, &mutex);
}
static void wait_cond_timedwait(void) {
  struct timespec until = later();
  pthread_mutex_lock(&mutex);
  pthread_cond_timedwait(&condition, &mutex, &until);
}
static void wait_mutex(void) { pthread_mutex_lock(&held); }
static void wait_rwlock(void) { pthread_rwlock_rdlock(&rwlock); }
static void wait_barrier(void) { pthread_barrier_wait(&barrier); }
static void wait_join(void) { pthread_join(sleeper, NULL); }
static void wait_futex(void) { syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0); }
static void wait_futex_with_timeout(void) { syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &kLong, NULL, 0); }
static void wait_sigwait(void) { sigwait(&usr1, &(int){0}); }
static void wait_sigwaitinfo(void) { sigwaitinfo(&usr1, NULL); }
static void wait_sigtimedwait(void) { sigtimedwait(&usr1, NULL, &kLong); }
static void wait_msgrcv(void) { msgrcv(one, buffer, 16, 0, 0); }
static void wait_semop(void) { semop(one, &(struct sembuf){0, -1, 0}, 1); }
static void wait_semtimedop(void) { semtimedop(one, &(struct sembuf){0, -1, 0}, 1, &kLong); }
static void wait_mq_receive(void) { mq_receive(one, buffer, sizeof buffer, NULL); }
static void wait_waitpid(void) { waitpid(-1, NULL, 0); }
static void wait_waitid(void) { waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED); }
static void wait_flock(void) { flock(open(".", O_RDONLY | O_DIRECTORY), LOCK_EX); }
static void wait_io_getevents(void) {
  aio_context_t context;
  struct io_event event;
  memcpy(&context, buffer, sizeof context);
  syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL);
}
static void wait_aio_suspend(void) {
  struct aiocb request = {.aio_fildes = fds[0], .aio_buf = buffer, .aio_nbytes = 1};
  const struct aiocb* list[] = {&request};
  aio_read(&request);
  aio_suspend(list, 1, NULL);
}

static const struct {
  const char* kind;
  void (*prepare)(void);
  void (*wait)(void);
} kinds[] = {
    {"pause", no_preparation, wait_pause},
    {"sigsuspend", no_preparation, wait_sigsuspend},
    {"sleep", no_preparation, wait_sleep},
    {"nanosleep", no_preparation, wait_nanosleep},
    {"clock_nanosleep", no_preparation, wait_clock_nanosleep},
    {"poll", no_preparation, wait_poll},
    {"ppoll", with_pipe, wait_ppoll},
    {"select", no_preparation, wait_select},
    {"pselect", with_pipe, wait_pselect},
    {"epoll_wait", with_epoll, wait_epoll_wait},
    {"epoll_pwait", with_epoll, wait_epoll_pwait},
    {"read-pipe", with_pipe, wait_read},
    {"write-pipe", with_full_pipe, wait_write},
    {"read-eventfd", with_eventfd, wait_read_one},
    {"read-timerfd", with_timerfd, wait_read_one},
    {"read-signalfd", with_signalfd, wait_read_one},
    {"read-inotify", with_inotify, wait_read_one},
    {"open-fifo", with_fifo, wait_open},
    {"accept", with_listener, wait_accept},
    {"recv", with_sockets, wait_recv},
    {"recvmsg", with_sockets, wait_recvmsg},
    {"recv-timeout", with_sockets, wait_recv_with_timeout},
    {"sem_wait", with_semaphore, wait_sem_wait},
    {"sem_timedwait", with_semaphore, wait_sem_timedwait},
    {"cond_wait", no_preparation, wait_cond_wait},
    {"cond_timedwait", no_preparation, wait_cond_timedwait},
    {"mutex", with_held_lock, wait_mutex},
    {"rwlock", with_held_rwlock, wait_rwlock},
    {"barrier", with_barrier, wait_barrier},
    {"join", with_sleeper, wait_join},
    {"futex", no_preparation, wait_futex},
    {"futex-timeout", no_preparation, wait_futex_with_timeout},
    {"sigwait", no_preparation, wait_sigwait},
    {"sigwaitinfo", no_preparation, wait_sigwaitinfo},
    {"sigtimedwait", no_preparation, wait_sigtimedwait},
    {"msgrcv", with_message_queue, wait_msgrcv},
    {"semop", with_semaphore_set, wait_semop},
    {"semtimedop", with_semaphore_set, wait_semtimedop},
    {"mq_receive", with_mqueue, wait_mq_receive},
    {"waitpid", with_child, wait_waitpid},
    {"waitid", with_child, wait_waitid},
    {"flock", with_locked_file, wait_flock},
    {"io_getevents", with_aio_context, wait_io_getevents},
    {"aio_suspend", with_pipe, wait_aio_suspend},
};

static size_t chosen;
static int thread_count;
static _Atomic pid_t waiting[kMaxThreads];

static void* waits(void* index) {
  waiting[(long)index] = (pid_t)syscall(SYS_gettid);
  kinds[chosen].wait();
  say("goes on\n");
  exit(0);
}

static void* dies(void* how) {
  for (int i = 0; i < thread_count; i++)
    while (!waiting[i] || !asleep(waiting[i])) usleep(500);
  die(how);
  return NULL;
}

int main(int count, char** words) {
  const char* kind = count > 1 ? words[1] : "pause";
  while (chosen < sizeof kinds / sizeof *kinds && !is(kinds[chosen].kind, kind)) chosen++;
  must(chosen < sizeof kinds / sizeof *kinds, "kind");
  thread_count = count > 2 ? atoi(words[2]) : 1;
  if (count > 4) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, NULL);
  kinds[chosen].prepare();

  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 1 << 18);
  pthread_t thread;
  for (long i = 1; i < thread_count; i++) must(pthread_create(&thread, &small, waits, (void*)i) == 0, "pthread_create");
  must(pthread_create(&thread, NULL, dies, count > 3 ? words[3] : "null") == 0, "pthread_create");
  waits(0);
}
