//go:build !plain

package main

// static int half(int n) { volatile char room[2000]; room[0] = n; return n / 2 + room[0] * 0; }
import "C"

func inC(n int) int { return int(C.half(C.int(n))) }
