// The runtime of Go: nil dereferences are SIGSEGV, preemption is SIGURG.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
)

type thing struct{ value int }

func load(t *thing) (result int) {
	defer func() {
		if recover() != nil {
			result = -1
		}
	}()
	return t.value
}

func spin(n int) (sum int) {
	for i := 0; i < n; i++ {
		sum += i & 1
	}
	return
}

func main() {
	switch os.Args[1] {
	case "recover":
		var group sync.WaitGroup
		sums := make([]int, 8)
		for g := range sums {
			group.Add(1)
			go func(g int) {
				defer group.Done()
				for i := 0; i < 2000; i++ {
					sums[g] += load(nil)
				}
			}(g)
		}
		group.Wait()
		fmt.Println(sums)
	case "preempt":
		var group sync.WaitGroup
		for g := 0; g < 8; g++ {
			group.Add(1)
			go func() { defer group.Done(); spin(20000000) }()
		}
		for i := 0; i < 20; i++ {
			runtime.GC()
		}
		group.Wait()
		fmt.Println("done")
	case "crash":
		var nothing *thing
		fmt.Println(nothing.value)
	case "exit":
		os.Exit(6)
	}
}
