// Loads many objects through a queue, and shows the progress: load [URL] [COUNT]
//
// A thousand operations are in flight at any time. The program sleeps until some have ended.
#include <cstdlib>
#include <iostream>
#include <string>
#include <thunderhead.hpp>

int main(int count, char** arguments) try {
    const std::string url = count > 1 ? arguments[1] : "thunderhead://localhost";
    const long total = count > 2 ? std::atol(arguments[2]) : 100000;
    auto db = thunderhead::Client::connect(url).value();
    const auto table = db.ensure_table("loaded").value().id();
    auto queue = thunderhead::Queue::connect(url).value();
    long submitted = 0, done = 0, failed = 0;
    while (done < total) {
        for (; submitted < total && submitted - done < 1000; submitted++) {
            const auto key = "object " + std::to_string(submitted);
            // The callback runs in drain(), on this thread.
            queue
                .submit(thunderhead::Operation::put(table, key, "a value"),
                        [&](const thunderhead::Result<thunderhead::Effect>& result) {
                            if (!result) failed++;
                            done++;
                            if (done % (total / 10 + 1) == 0 || done == total) {
                                std::cout << done << " of " << total << '\n';
                            }
                        })
                .value();
        }
        if (queue.wait(std::chrono::seconds(1))) queue.drain().value();
    }
    queue.close().value();
    std::cout << failed << " failed\n";
    return failed == 0 ? 0 : 1;
} catch (const thunderhead::bad_expected_access<thunderhead::Error>& failure) {
    std::cerr << failure.error().message() << '\n';
    return 1;
}
