package main

// random is SplitMix64: few lines, and nobody can change its sequence under us.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below is a number from 0 to n-1. A slight bias does not matter here.
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// oneIn is true once in n times.
func (r *random) oneIn(n int) bool { return r.below(n) == 0 }

func pick[T any](r *random, from []T) T { return from[r.below(len(from))] }
