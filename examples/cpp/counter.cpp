// Counts to a number, one by one: counter [URL] [COUNT] [TABLE]
//
// Kill the server while it runs, and start it again: no increment is lost, and none is done twice.
// The client repeats an increment under one identity, so the server does it once.
#include <cstdlib>
#include <iostream>
#include <thunderhead.hpp>

int main(int count, char** arguments) {
    const char* url = count > 1 ? arguments[1] : "thunderhead://localhost";
    const long total = count > 2 ? std::atol(arguments[2]) : 10000;
    const char* name = count > 3 ? arguments[3] : "counters";
    const auto fail = [](const thunderhead::Error& error) {
        // The only way to lose count is an unknown outcome, and the error says so.
        std::cerr << (error.unknown() ? "unknown: " : "not done: ") << error.message() << '\n';
        return 1;
    };

    // Long enough for a server to be started again.
    auto db = thunderhead::Client::connect(url, {.deadline = std::chrono::minutes(1)});
    if (!db) return fail(db.error());
    auto counters = db->ensure_table(name);
    if (!counters) return fail(counters.error());
    auto start = counters->increment("visits", 0);
    if (!start) return fail(start.error());
    std::cout << "from " << start->value << std::endl;
    for (long at = 1; at <= total; at++) {
        auto sum = counters->increment("visits");
        if (!sum) return fail(sum.error());
        if (sum->value != start->value + at) {
            std::cerr << "after " << at << " increments the sum is " << sum->value << '\n';
            return 1;
        }
        if (at % 1000 == 0) std::cout << sum->value << std::endl;
    }
    std::cout << total << " increments, each done once\n";
}
