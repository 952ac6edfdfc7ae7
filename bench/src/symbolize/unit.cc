// Many instances of templates: much debug information for little text.
#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>
template <int N> struct Shop {
  std::map<std::string, std::vector<int>> items; std::unordered_map<int, std::string> names;
  int run(const std::string &t) {
    std::regex r(t); std::smatch m; int n = std::regex_search(t, m, r) ? N : 0;
    for (int i = 0; i < n + N; i++) { items[std::to_string(i)].push_back(i); names[i] = t; }
    std::vector<std::pair<int, std::string>> v(names.begin(), names.end());
    std::sort(v.begin(), v.end(), [](auto &a, auto &b) { return a.second.size() + N < b.second.size(); });
    std::variant<int, std::string, double> x = n; std::ostringstream o; std::visit([&](auto &q) { o << q; }, x);
    std::function<int(int)> f = [&](int k) { return k + (int)o.str().size(); };
    return f(n) + (int)v.size();
  }
};
template <int N> int all(const std::string &t) { Shop<N> s; int r = s.run(t); if constexpr (N > 0) r += all<N - 1>(t); return r; }
int entry(const char *t) { return all<30>(t); }
