package thunderhead

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// keyHash returns the hash that places a key: XXH3 with 64 bits and seed 0. Clients of all
// languages compute the same hash, because it decides the tablet of a key.
func keyHash(key string) uint64 {
	n := len(key)
	if n == 0 {
		return avalanche64(secret64(56) ^ secret64(64))
	}
	// The hash only reads the bytes, so they need no copy.
	b := unsafe.Slice(unsafe.StringData(key), n)
	switch {
	case n <= 3:
		combo := uint32(b[0])<<16 | uint32(b[n>>1])<<24 | uint32(b[n-1]) | uint32(n)<<8
		return avalanche64(uint64(combo) ^ uint64(secret32(0)^secret32(4)))
	case n <= 8:
		low, high := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[n-4:])
		keyed := uint64(high) + uint64(low)<<32
		return rrmxmx(keyed^secret64(8)^secret64(16), uint64(n))
	case n <= 16:
		low := binary.LittleEndian.Uint64(b) ^ secret64(24) ^ secret64(32)
		high := binary.LittleEndian.Uint64(b[n-8:]) ^ secret64(40) ^ secret64(48)
		return avalanche3(uint64(n) + bits.ReverseBytes64(low) + high + foldedProduct(low, high))
	case n <= 128:
		return hashTo128(b)
	case n <= 240:
		return hashTo240(b)
	}
	return hashLong(b)
}

const (
	prime32x1 = 0x9E3779B1
	prime32x2 = 0x85EBCA77
	prime32x3 = 0xC2B2AE3D
	prime64x1 = 0x9E3779B185EBCA87
	prime64x2 = 0xC2B2AE3D27D4EB4F
	prime64x3 = 0x165667B19E3779F9
	prime64x4 = 0x85EBCA77C2B2AE63
	prime64x5 = 0x27D4EB2F165667C5

	stripeBytes  = 64
	blockStripes = (len(hashSecret) - stripeBytes) / 8
	blockBytes   = stripeBytes * blockStripes
)

func hashTo128(b []byte) uint64 {
	n := len(b)
	sum := uint64(n) * prime64x1
	for i := (n - 1) / 32; i >= 0; i-- {
		sum += mix16(b[16*i:], 32*i)
		sum += mix16(b[n-16*(i+1):], 32*i+16)
	}
	return avalanche3(sum)
}

func hashTo240(b []byte) uint64 {
	n := len(b)
	sum := uint64(n) * prime64x1
	for i := 0; i < 8; i++ {
		sum += mix16(b[16*i:], 16*i)
	}
	sum = avalanche3(sum)
	for i := 8; i < n/16; i++ {
		sum += mix16(b[16*i:], 16*(i-8)+3)
	}
	return avalanche3(sum + mix16(b[n-16:], 136-17))
}

func hashLong(b []byte) uint64 {
	lanes := [8]uint64{
		prime32x3, prime64x1, prime64x2, prime64x3, prime64x4, prime32x2, prime64x5, prime32x1,
	}
	blocks := (len(b) - 1) / blockBytes
	for block := 0; block < blocks; block++ {
		for i := 0; i < blockStripes; i++ {
			addStripe(&lanes, b[blockBytes*block+stripeBytes*i:], 8*i)
		}
		for i, lane := range lanes {
			lane ^= lane >> 47
			lane ^= secret64(len(hashSecret) - stripeBytes + 8*i)
			lanes[i] = lane * prime32x1
		}
	}
	rest := b[blockBytes*blocks:]
	for i := 0; i < (len(rest)-1)/stripeBytes; i++ {
		addStripe(&lanes, rest[stripeBytes*i:], 8*i)
	}
	addStripe(&lanes, b[len(b)-stripeBytes:], len(hashSecret)-stripeBytes-7)
	sum := uint64(len(b)) * prime64x1
	for i := 0; i < 4; i++ {
		at := 11 + 16*i
		sum += foldedProduct(lanes[2*i]^secret64(at), lanes[2*i+1]^secret64(at+8))
	}
	return avalanche3(sum)
}

func addStripe(lanes *[8]uint64, b []byte, secret int) {
	b = b[:stripeBytes]
	for i := 0; i < 8; i++ {
		word := binary.LittleEndian.Uint64(b[8*i:])
		keyed := word ^ secret64(secret+8*i)
		lanes[i^1] += word
		lanes[i] += (keyed & 0xffffffff) * (keyed >> 32)
	}
}

func mix16(b []byte, secret int) uint64 {
	return foldedProduct(
		binary.LittleEndian.Uint64(b)^secret64(secret),
		binary.LittleEndian.Uint64(b[8:])^secret64(secret+8),
	)
}

func foldedProduct(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

func avalanche64(h uint64) uint64 {
	h ^= h >> 33
	h *= prime64x2
	h ^= h >> 29
	h *= prime64x3
	return h ^ h>>32
}

func avalanche3(h uint64) uint64 {
	h ^= h >> 37
	h *= 0x165667919E3779F9
	return h ^ h>>32
}

func rrmxmx(h, n uint64) uint64 {
	h ^= bits.RotateLeft64(h, 49) ^ bits.RotateLeft64(h, 24)
	h *= 0x9FB21C651E98DF25
	h ^= h>>35 + n
	h *= 0x9FB21C651E98DF25
	return h ^ h>>28
}

func secret32(at int) uint32 { return binary.LittleEndian.Uint32(hashSecret[at:]) }
func secret64(at int) uint64 { return binary.LittleEndian.Uint64(hashSecret[at:]) }

// hashSecret is the default secret of XXH3.
var hashSecret = [192]byte{
	0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
	0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
	0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
	0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
	0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
	0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
	0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
	0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
	0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
	0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
	0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
	0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
}
