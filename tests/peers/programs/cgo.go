// The same with C in the process: Go installs its handlers with SA_ONSTACK on alternate stacks of its own, and chains.
package main

/*
#include <pthread.h>
static int load(int* address) { return *address; }
static int add(int a, int b) { return a + b; }
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

type thing struct{ value int }

func nilLoad() (result int) {
	defer func() {
		if recover() != nil {
			result = -1
		}
	}()
	var nothing *thing
	return nothing.value
}

func main() {
	switch os.Args[1] {
	case "recover", "preempt":
		var group sync.WaitGroup
		sums := make([]int, 8)
		for g := range sums {
			group.Add(1)
			go func(g int) {
				defer group.Done()
				for i := 0; i < 1000; i++ {
					sums[g] += nilLoad() + int(C.add(1, 1))
				}
			}(g)
		}
		group.Wait()
		fmt.Println(sums)
	case "crash":
		fmt.Println(C.load((*C.int)(unsafe.Pointer(uintptr(8)))))
	case "exit":
		os.Exit(6)
	}
}
