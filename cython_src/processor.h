/* The abilities of the processor and the system, asked of the processor itself: what compilers offer for that needs their own
   runtime library, and that of some (zig's) says no to everything. */
#ifndef RLX_PROCESSOR_H
#define RLX_PROCESSOR_H

/* Whether vectors of 32 and 64 bytes for x86-64 can be compiled: the kernels are written in the vector types of GCC and
   clang, also of the clang that stands in for Microsoft's compiler. */
#if (defined(__x86_64__) || defined(_M_X64)) && (defined(__GNUC__) || defined(__clang__))
#define RLX_X86_VECTORS
#include <cpuid.h>
#include <stdint.h>

/* The parts of the registers that the system saves when it changes threads: bits 1 and 2 stand for vectors of up to 32
   bytes, bits 5 to 7 for masks and vectors of 64. */
static inline uint32_t rlx_saved_registers(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return a;
}

static inline int rlx_has_avx2(void)
{
    unsigned a, b, c, d;
    if ((rlx_saved_registers() & 0x06) != 0x06) return 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_FMA) || !(c & bit_F16C)) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

static inline int rlx_has_avx512(void)
{
    unsigned a, b, c, d;
    const unsigned wanted = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    if (!rlx_has_avx2() || (rlx_saved_registers() & 0xe0) != 0xe0) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & wanted) == wanted;
}

/* Dot products of bytes: in vectors of 64 bytes, and in vectors of 32 on processors without (AVX-VNNI). */
static inline int rlx_has_dots(void)
{
    unsigned a, b, c, d;
    return rlx_has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & bit_AVX512VNNI);
}
static inline int rlx_has_dots_avx2(void)
{
    unsigned a, b, c, d;
    return rlx_has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}
static inline int rlx_has_mmla(void) { return 0; }
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
/* Products of tiles of bf16 (AMX). The system keeps tiles (bits 17 and 18) for processes that ask: ARCH_REQ_XCOMP_PERM. */
static inline int rlx_has_tiles(void)
{
    unsigned a, b, c, d;
    if (!rlx_has_dots() || (rlx_saved_registers() & 0x60000) != 0x60000) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 22) || !(d & 1u << 24)) return 0;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & 1u << 5)) return 0; /* conversions to bf16 */
    return !syscall(SYS_arch_prctl, 0x1023, 18);
}
#define RLX_HAS_TILES
#endif
#elif (defined(__aarch64__) || defined(_M_ARM64)) && (defined(__GNUC__) || defined(__clang__))
/* Whether vectors for 64-bit ARM can be compiled. */
#define RLX_ARM_VECTORS
#if defined(_WIN32)
/* Declared here: windows.h defines `near` and other words as macros. */
__declspec(dllimport) int __stdcall IsProcessorFeaturePresent(unsigned long);
static inline int rlx_has_dots(void) { return IsProcessorFeaturePresent(43); } /* PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE */
static inline int rlx_has_mmla(void) { return IsProcessorFeaturePresent(66); } /* PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE */
#elif defined(__APPLE__)
#include <sys/sysctl.h>
static inline int rlx_has_feature(const char *name)
{
    int has = 0;
    size_t bytes = sizeof has;
    return !sysctlbyname(name, &has, &bytes, NULL, 0) && has;
}
static inline int rlx_has_dots(void) { return rlx_has_feature("hw.optional.arm.FEAT_DotProd"); }
static inline int rlx_has_mmla(void) { return rlx_has_feature("hw.optional.arm.FEAT_I8MM"); }
#elif defined(__linux__)
#include <sys/auxv.h>
static inline int rlx_has_dots(void) { return getauxval(AT_HWCAP) >> 20 & 1; } /* HWCAP_ASIMDDP */
static inline int rlx_has_mmla(void) { return getauxval(AT_HWCAP2) >> 13 & 1; } /* HWCAP2_I8MM */
#else
static inline int rlx_has_dots(void) { return 0; }
static inline int rlx_has_mmla(void) { return 0; }
#endif
#else
static inline int rlx_has_dots(void) { return 0; }
static inline int rlx_has_mmla(void) { return 0; }
#endif

#ifndef RLX_HAS_TILES
static inline int rlx_has_tiles(void) { return 0; }
#endif

#endif
