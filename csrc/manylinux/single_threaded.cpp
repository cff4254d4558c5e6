// A variable of glibc 2.32, for wheels. libstdc++'s reference counts read it: false means that they are atomic, which is always right.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
