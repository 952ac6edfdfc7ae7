// Faults in a page now and then until the file named by its argument is there; then 5,000 at once, and no more.
#include <cstddef>
#include <cstdio>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static const size_t PAGE = 4096;

static char *memory(size_t pages) {
    void *at = mmap(nullptr, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) _exit(1);
    // A fault for each page.
    madvise(at, pages * PAGE, MADV_NOHUGEPAGE);
    return static_cast<char *>(at);
}

__attribute__((noinline)) void seldom_in_cpp(volatile char *page) {
    *page = 1;
    asm volatile("");
}

__attribute__((noinline)) void faults_in_cpp(volatile char *at, size_t pages) {
    for (size_t i = 0; i < pages; i++) at[i * PAGE] = 1;
    asm volatile("");
}

static long taken() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

int main(int, char **arguments) {
    const size_t seldom = 12000, many = 5000;
    char *pages = memory(seldom), *all = memory(many);
    for (size_t i = 0; access(arguments[1], F_OK); i++) {
        if (i == seldom) return 1;
        seldom_in_cpp(pages + i * PAGE);
        usleep(10000);
    }
    long before = taken();
    faults_in_cpp(all, many);
    std::printf("faults %ld\n", taken() - before);
    std::fflush(stdout);
    sleep(120);
}
