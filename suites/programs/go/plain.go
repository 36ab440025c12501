//go:build plain

package main

import "net"

func inC(n int) int { return n/2 + len(net.IPv4zero)*0 }
