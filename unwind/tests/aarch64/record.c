/* Interrupts itself at random instructions and writes registers and stacks: the recorded half of
 * unwind/tests/aarch64. `record.sh` beside it says how it is built and run. */
#define _GNU_SOURCE
#include <alloca.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { SAMPLES = 64, WORDS = 2048 };

static int out;
static int taken;
static uint64_t stack_end;
static volatile uint64_t sink;

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    const mcontext_t *machine = &((ucontext_t *)context)->uc_mcontext;
    if (taken >= SAMPLES) return;
    uint64_t words = (stack_end - machine->sp) / 8;
    uint64_t header[5] = {machine->pc, machine->sp, machine->regs[29], machine->regs[30],
                          words < WORDS ? words : WORDS};
    if (write(out, header, sizeof header) != sizeof header) _exit(1);
    if (write(out, (void *)machine->sp, header[4] * 8) != (ssize_t)(header[4] * 8)) _exit(1);
    taken++;
}

/* Saves nothing: the return address stays in x30. */
__attribute__((noinline)) uint64_t leaf(uint64_t n) {
    for (uint64_t i = 0; i < 40; i++) n = n * 6364136223846793005u + 1;
    return n;
}

/* Short, so that prologue and epilogue are interrupted too. */
__attribute__((noinline)) uint64_t small(uint64_t n) { return leaf(n) ^ leaf(n + 1); }

__attribute__((noinline)) uint64_t recurse(uint64_t n, int depth) {
    if (depth == 0) {
        for (uint64_t i = 0; i < 16; i++) sink += small(n + i);
        return sink;
    }
    n = recurse(n + 1, depth - 1);
    sink++; /* or the compiler makes a loop of it */
    return n;
}

/* The CFA is found by x29. */
__attribute__((noinline)) uint64_t variable(uint64_t n) {
    volatile char *room = alloca(16 + n % 512);
    room[0] = (char)n;
    for (uint64_t i = 0; i < 8; i++) sink += small(n + i);
    return (uint64_t)room[0];
}

/* A frame that takes two instructions to make. */
__attribute__((noinline)) uint64_t large(uint64_t n) {
    volatile uint64_t room[700];
    for (int i = 0; i < 700; i += 100) room[i] = small(n + (uint64_t)i);
    return room[0] + room[600];
}

static int compare(const void *a, const void *b) {
    sink += leaf(*(const uint32_t *)a);
    return (*(const uint32_t *)a > *(const uint32_t *)b) - (*(const uint32_t *)a < *(const uint32_t *)b);
}

/* libc in the middle of the stack. */
__attribute__((noinline)) uint64_t through_libc(uint64_t n) {
    uint32_t numbers[64];
    for (int i = 0; i < 64; i++) numbers[i] = (uint32_t)(n = leaf(n));
    qsort(numbers, 64, sizeof numbers[0], compare);
    return numbers[0];
}

/* libc on top of the stack. */
__attribute__((noinline)) uint64_t format(uint64_t n) {
    char text[128];
    return (uint64_t)snprintf(text, sizeof text, "%lu %s %g", n, "text", (double)n);
}

int main(int count, char **arguments) {
    if (count != 2 || (out = open(arguments[1], O_WRONLY | O_CREAT | O_TRUNC, 0644)) < 0) return 1;
    stack_end = ((uint64_t)arguments) & ~7ull;
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 1009}, {0, 1009}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (uint64_t n = 0; taken < SAMPLES; n++) {
        switch (n % 6) {
        case 0: sink += recurse(n, 12); break;
        case 1: sink += variable(n); break;
        case 2: sink += large(n); break;
        case 3: sink += through_libc(n); break;
        case 4: sink += format(n); break;
        default: sink += small(n);
        }
    }
    return 0;
}
