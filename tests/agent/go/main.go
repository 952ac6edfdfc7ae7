// A function that uses nearly all CPU time, for two minutes at most.
package main

import (
	"fmt"
	"time"
)

//go:noinline
func hotInGo(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum = (sum*31 + i) % 1000003
	}
	return sum
}

func main() {
	total := 0
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		total += hotInGo(1000000)
	}
	fmt.Println(total)
}
