// A queue of jobs for any number of workers: queue [URL] [JOBS]
//
// A job is an object. A worker claims it with a conditional write: of several workers that try, one
// succeeds. Workers may be in other processes, on other machines.
#include <cstdlib>
#include <future>
#include <iostream>
#include <string>
#include <thunderhead.hpp>
#include <vector>

/// Claims jobs until none is left. Returns how many it did.
static int work(const std::string& url) {
    // A client is for one thread, so each worker has its own.
    auto db = thunderhead::Client::connect(url).value();
    auto jobs = db.table("jobs").value();
    int done = 0;
    for (const auto& job : jobs.scan()) {
        if (job.value() != "new") continue;
        auto claimed =
            jobs.put_if(job.key(), "claimed", thunderhead::version_is(job.version()));
        if (!claimed && claimed.error().condition_failed()) continue; // Another worker was faster.
        // The work itself would be here. Then the job is removed, if it is still ours.
        jobs.erase_if(job.key(), thunderhead::version_is(claimed.value())).value();
        done++;
    }
    return done;
}

int main(int count, char** arguments) try {
    const std::string url = count > 1 ? arguments[1] : "thunderhead://localhost";
    const int total = count > 2 ? std::atoi(arguments[2]) : 300;
    auto db = thunderhead::Client::connect(url).value();
    auto jobs = db.create_table("jobs").value();
    for (int at = 0; at < total; at++) jobs.put("job " + std::to_string(at), "new").value();
    std::vector<std::future<int>> workers;
    for (int at = 0; at < 3; at++) workers.push_back(std::async(std::launch::async, work, url));
    int done = 0;
    for (auto& worker : workers) {
        const int its = worker.get();
        std::cout << "a worker did " << its << " jobs\n";
        done += its;
    }
    std::cout << done << " of " << total << " jobs, each done once\n";
    db.drop_table("jobs").value();
    return done == total ? 0 : 1;
} catch (const thunderhead::bad_expected_access<thunderhead::Error>& failure) {
    std::cerr << failure.error().message() << '\n';
    return 1;
}
