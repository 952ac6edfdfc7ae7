// Peer process of `bench sdk locks`: what Go's block profile adds to a wait. Two goroutines take
// turns through a condition variable; prints CPU nanoseconds a wait, `name value`, with the profile off
// and with every wait in it.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
)

const (
	rounds = 100000
	passes = 7
	depth  = 30
)

func main() {
	runtime.GOMAXPROCS(1)
	fmt.Println("handoff_off", smallest())
	runtime.SetBlockProfileRate(1)
	fmt.Println("handoff_kept", smallest())
}

func smallest() float64 {
	least := 0.0
	for pass := 0; pass < passes; pass++ {
		before := cpu()
		handoff()
		each := float64(cpu()-before) / (2 * rounds)
		if pass == 0 || each < least {
			least = each
		}
	}
	return least
}

func handoff() {
	var mutex sync.Mutex
	changed := sync.NewCond(&mutex)
	turn := 0
	var done sync.WaitGroup
	for own := 0; own < 2; own++ {
		done.Add(1)
		go func() {
			defer done.Done()
			below(depth, func() {
				for round := 0; round < rounds; round++ {
					mutex.Lock()
					for turn != 2*round+own {
						changed.Wait()
					}
					turn++
					mutex.Unlock()
					changed.Signal()
				}
			})
		}()
	}
	done.Wait()
}

//go:noinline
func below(levels int, work func()) int {
	if levels == 0 {
		work()
		return 0
	}
	return below(levels-1, work) + 1
}

func cpu() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
