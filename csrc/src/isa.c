#include <stdlib.h>
#include <string.h>

#include "model.h"

static const char *const names[] = {"portable", "avx2", "avxvnni", "avx512vnni"};

const char *tw_isa_name(tw_isa isa) { return names[isa]; }

#if defined(TW_X86_64)
#include <cpuid.h>

/* What the operating system saves: bits of XCR0. */
static uint32_t saved_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    return low;
}

static tw_isa best(void) {
    const uint32_t avx_state = 0x6, avx512_state = 0xE6;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX) ||
        (saved_state() & avx_state) != avx_state) {
        return TW_PORTABLE;
    }
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) {
        return TW_PORTABLE;
    }
    const uint32_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    const uint32_t avx512vnni = UINT32_C(1) << 11, avxvnni = UINT32_C(1) << 4;
    if ((b & avx512) == avx512 && (c & avx512vnni) &&
        (saved_state() & avx512_state) == avx512_state) {
        return TW_AVX512VNNI;
    }
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & avxvnni)) {
        return TW_AVXVNNI;
    }
    return TW_AVX2;
}

/* A processor may have AVX512-VNNI without AVX-VNNI; the sets are then no longer a chain. */
static bool has(tw_isa isa) {
    uint32_t a, b, c, d;
    if (isa == TW_AVXVNNI) {
        return best() >= TW_AVXVNNI && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
               (a & (UINT32_C(1) << 4));
    }
    return isa <= best();
}
#else
static tw_isa best(void) { return TW_PORTABLE; }
static bool has(tw_isa isa) { return isa == TW_PORTABLE; }
#endif

bool tw_isa_detect(tw_isa *isa) {
    const char *wanted = getenv("TILEWRIGHT_ISA");
    *isa = best();
    if (wanted == NULL || wanted[0] == '\0') {
        return true;
    }
    for (int i = TW_PORTABLE; i <= TW_AVX512VNNI; ++i) {
        if (strcmp(wanted, names[i]) == 0 && has((tw_isa)i)) {
            *isa = (tw_isa)i;
            return true;
        }
    }
    return false;
}
