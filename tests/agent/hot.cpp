// A function that uses nearly all CPU time, for two minutes at most.
#include <chrono>
#include <cstdio>

namespace work {
__attribute__((noinline)) long hot_in_cpp(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++) sum = (sum * 31 + i) % 1000003;
    return sum;
}
}  // namespace work

int main() {
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    long total = 0;
    while (std::chrono::steady_clock::now() < end) total += work::hot_in_cpp(1000000);
    std::printf("%ld\n", total);
}
