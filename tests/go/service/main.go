// A Go service as its authors wrote it: net/http/pprof and some work, nothing of pilotlight.
package main

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"sort"
)

//go:noinline
func hashOrders(data []byte) [32]byte {
	sum := sha256.Sum256(data)
	for i := 0; i < 200; i++ {
		sum = sha256.Sum256(append(sum[:], data...))
	}
	return sum
}

//go:noinline
func sortOrders(seed int) int {
	orders := make([]int, 4000)
	for i := range orders {
		seed = seed*1103515245 + 12345
		orders[i] = seed >> 8
	}
	sort.Ints(orders)
	return orders[0]
}

func work() {
	data := make([]byte, 2048)
	for i := 0; ; i++ {
		sum := hashOrders(data)
		data[i%len(data)] = sum[0] + byte(sortOrders(i))
	}
}

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go work()
	fmt.Println("listening on", listener.Addr())
	fmt.Fprintln(os.Stderr, http.Serve(listener, nil))
}
