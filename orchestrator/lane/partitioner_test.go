package lane

import "testing"

// The vectors are those of Kafka's own test of its default partitioner. Any
// client that follows it writes an order where its lane reads it.
func TestPartitionerIsKafkasDefault(t *testing.T) {
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		for _, n := range []int32{1, 2, 3, 12, 100, 1<<31 - 1} {
			want := (hash & 0x7fffffff) % n
			if got := NewPartitioner(n).Of([]byte(key)); got != want {
				t.Errorf("%q is in partition %d of %d, not %d", key, got, n, want)
			}
		}
	}
}
