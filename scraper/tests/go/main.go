// An unmodified Go program: net/http/pprof, and one function that is busy.
package main

import (
	"crypto/sha256"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
)

//go:noinline
func spinForTheProfiler(seed [32]byte) [32]byte {
	for i := 0; i < 1000; i++ {
		seed = sha256.Sum256(seed[:])
	}
	return seed
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(listener.Addr().String() + "\n")
	go func() {
		var seed [32]byte
		for {
			seed = spinForTheProfiler(seed)
		}
	}()
	panic(http.Serve(listener, nil))
}
