# In a source tree of libgc 8: builds the collector in one object, as its README advises, and the programs of its tests.
set -e
flags="-O1 -g -I include -DGC_THREADS -DGC_BUILTIN_ATOMIC -DALL_INTERIOR_POINTERS -DPARALLEL_MARK -DTHREAD_LOCAL_ALLOC"
cc $flags -c extra/gc.c -o gc.o
cc $flags -DTEST_WITH_SYSTEM_MALLOC -o gctest tests/test.c gc.o -lpthread -ldl
for test in huge_test leak_test middle realloc_test smash_test thread_leak_test threadkey_test subthread_create initsecondarythread; do
  cc $flags -o "$test" "tests/$test.c" gc.o -lpthread -ldl || true
done
