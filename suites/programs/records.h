/* Records whose length and content follow from (file, number) alone, so that a checker needs no list. */
#ifndef RECORDS_H
#define RECORDS_H
#include <stddef.h>
#include <stdint.h>

enum { RECORD_MAX = 3000 };

static inline uint64_t mix(uint64_t x) {
  x ^= x >> 33; x *= 0xff51afd7ed558ccdull; x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53ull; return x ^ x >> 33;
}

static inline size_t fill(unsigned char *out, uint64_t f, uint64_t n) {
  uint64_t s = mix(f * 1000003 + n + 1);
  size_t len = 16 + s % (n % 97 == 0 ? RECORD_MAX - 16 : 500);
  for (size_t i = 0; i < len; i++) out[i] = (unsigned char)mix(s + i / 8) >> (i % 8);
  return len;
}
#endif
