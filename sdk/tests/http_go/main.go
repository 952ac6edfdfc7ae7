// The reference: a stock program with net/http/pprof on the port that it prints.
package main

import (
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	panic(http.Serve(listener, nil))
}
