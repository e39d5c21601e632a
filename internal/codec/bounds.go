package codec

import "fmt"

// CBOR's major types.
const (
	majorUint  = 0
	majorInt   = 1
	majorBytes = 2
	majorText  = 3
	majorArray = 4
	majorMap   = 5
	majorTag   = 6
	majorOther = 7
)

// CheckBounds walks b without decoding it, and refuses more items of lists and maps, or
// deeper nesting, than are allowed. The decoder names what is malformed.
func CheckBounds(b []byte, maxItems, maxNesting int) error {
	items := uint64(0)
	var open []uint64 // how many values the maps and lists around still lack
	for len(b) > 0 {
		major, n, size := readHead(b)
		if size == 0 {
			return nil
		}
		b = b[size:]
		values := uint64(0)
		switch major {
		case majorBytes, majorText:
			if n > uint64(len(b)) {
				return nil
			}
			b = b[n:]
		case majorArray, majorMap:
			if items += 1 + n; n > uint64(maxItems) || items > uint64(maxItems) {
				return fmt.Errorf("more than %d items", maxItems)
			}
			if values = n; major == majorMap {
				values = 2 * n
			}
		}
		if values > 0 {
			if open = append(open, values); len(open) > maxNesting {
				return fmt.Errorf("nested more than %d deep", maxNesting)
			}
			continue
		}
		for len(open) > 0 {
			last := &open[len(open)-1]
			if *last--; *last > 0 {
				break
			}
			open = open[:len(open)-1]
		}
	}
	return nil
}

// readHead reads what b begins with, and how many bytes that takes; 0: it is no head.
func readHead(b []byte) (major byte, n uint64, size int) {
	major, n, size = b[0]>>5, uint64(b[0]&0x1f), 1
	if n < 24 {
		return major, n, size
	}
	if n > 27 {
		return 0, 0, 0 // indefinite or reserved
	}
	size += 1 << (n - 24)
	if len(b) < size {
		return 0, 0, 0
	}
	n = 0
	for _, c := range b[1:size] {
		n = n<<8 | uint64(c)
	}
	return major, n, size
}
