// Command chance prints random values that a Go program draws, and the order in which goroutines arrive that work for
// longer than a quantum of the scheduler.
package main

import (
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/deterministic"
)

func main() {
	os.Args = os.Args[:1]
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "chance", F: func(t *testing.T) {
		deterministic.Seed(7)
		synctest.Test(t, func(*testing.T) { draw() })
	}}}, nil, nil)
}

func draw() {
	numbers := map[int]bool{}
	for i := range 50 {
		numbers[i] = true
	}
	for n := range numbers {
		fmt.Print(n, " ")
	}
	id := make([]byte, 8)
	if _, err := cryptorand.Read(id); err != nil {
		panic(err)
	}
	fmt.Printf("\n%d %x\n", rand.Uint64(), id)
	var mu sync.Mutex
	var wait sync.WaitGroup
	var order []int
	for i := range 30 {
		wait.Go(func() {
			time.Sleep(time.Second) // all wake in one instant
			for end := work(i); end > 0; end-- {
				select {
				case <-closed:
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
				case <-alsoClosed:
				}
			}
		})
	}
	wait.Wait()
	fmt.Println(order, slices.Max(order))
}

var closed, alsoClosed = make(chan struct{}), make(chan struct{})

func init() {
	close(closed)
	close(alsoClosed)
}

// work takes about a millisecond, and now and then the disk.
func work(i int) int {
	if i%5 == 0 {
		if err := os.WriteFile(os.DevNull, make([]byte, 1<<16), 0o600); err != nil {
			panic(err)
		}
	}
	sum := uint64(i)
	for range 500_000 {
		sum = sum*6364136223846793005 + 1442695040888963407
	}
	return 2 + int(sum>>63)
}
