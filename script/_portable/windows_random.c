/* bcryptprimitives.dll, which wine 8 lacks: the one function that Rust's library needs, in terms of an older one. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(void *to, ULONG bytes); /* RtlGenRandom, in advapi32.dll */

__declspec(dllexport) BOOL WINAPI ProcessPrng(unsigned char *to, size_t bytes) {
    return SystemFunction036(to, (ULONG)bytes);
}
