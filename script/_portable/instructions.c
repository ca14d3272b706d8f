/* A plug-in of qemu that counts instructions: all of them, those that compute with one float, and those on vectors. A
   program asks for the counts by getpriority(77, 0); they are written to the standard error stream. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part in use of qemu's interface for plug-ins (version 1): Debian has no header of it. */
typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*on_block)(plugin_id, struct qemu_plugin_tb *);
typedef void (*on_call)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t);
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, on_block);
extern void qemu_plugin_register_vcpu_syscall_cb(plugin_id, on_call);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern char *qemu_plugin_insn_disas(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
enum { ADD = 0, GETPRIORITY = 141, ASKED = 77 };

#define SEEN_BY_QEMU __attribute__((visibility("default")))
SEEN_BY_QEMU int qemu_plugin_version = 1;

static uint64_t all, scalar, vector;

static int is_vector(const char *text)
{
    static const char *const shapes[] = {".4s", ".2d", ".16b", ".8h", ".2s", ".4h", ".8b"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strstr(text, shapes[i])) return 1;
    return 0;
}

/* An instruction of floating point, other than a move, whose result is one number. */
static int is_scalar(const char *text)
{
    const char *result = strchr(text, ' ');
    while (result && *result == ' ') result++;
    return text[0] == 'f' && strncmp(text, "fmov", 4) && result && strchr("sdh", *result);
}

static void block(plugin_id id, struct qemu_plugin_tb *tb)
{
    const size_t n = qemu_plugin_tb_n_insns(tb);
    uint64_t singles = 0, vectors = 0;
    (void)id;
    for (size_t i = 0; i < n; i++) {
        char *text = qemu_plugin_insn_disas(qemu_plugin_tb_get_insn(tb, i));
        if (!text) continue;
        if (is_vector(text)) vectors++;
        else if (is_scalar(text)) singles++;
        free(text);
    }
    qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD, &all, n);
    if (singles) qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD, &scalar, singles);
    if (vectors) qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD, &vector, vectors);
}

static void call(plugin_id id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                 uint64_t f, uint64_t g, uint64_t h)
{
    (void)id, (void)cpu, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number != GETPRIORITY || a != ASKED) return;
    fprintf(stderr, "counts %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", all, scalar, vector);
    fflush(stderr);
}

SEEN_BY_QEMU int qemu_plugin_install(plugin_id id, const void *about, int argc, char **argv)
{
    (void)about, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, block);
    qemu_plugin_register_vcpu_syscall_cb(id, call);
    return 0;
}
