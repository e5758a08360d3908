// Measures the client for C++: docs/testing/costs.md describes its input and output.
//
// It reads requests from its standard input, one line of JSON each, does rounds of operations, and
// writes the time of an operation in each round. It has no Redis client. A request that makes no
// sense is a fault of the judge: it ends the program with status 1.
#include "thunderhead.hpp"

#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace th = thunderhead;

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t KEYS = 100;

/// A client, its table, and the objects of all calls.
class Cost {
public:
    explicit Cost(const Json& request)
        : db_(th::Client::connect(request.at("url").get<std::string>()).value()),
          table_(db_.table(request.at("table").get<std::string>()).value()),
          value_(request.at("value_bytes").get<std::size_t>(), 'v') {
        for (std::size_t at = 0; at < KEYS; at++) keys_.push_back("key" + std::to_string(at));
        put_many(1);
    }

    /// Does a round, and returns the nanoseconds of an operation.
    double round(const std::string& work, std::size_t count) {
        const auto began = std::chrono::steady_clock::now();
        if (work == "get") {
            gets(count);
        } else if (work == "put") {
            puts(count);
        } else if (work == "get_many") {
            get_many(count / KEYS);
        } else if (work == "put_many") {
            put_many(count / KEYS);
        } else {
            throw std::invalid_argument("there is no work " + work);
        }
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
        return took.count() / static_cast<double>(count);
    }

private:
    /// Reads without a copy, and looks at the result where it is, as a program in C does.
    void gets(std::size_t count) {
        for (std::size_t at = 0; at < count; at++) {
            const auto found = table_.borrow(keys_[0]);
            if (!found || !*found || (*found)->bytes().size() != value_.size()) {
                throw std::runtime_error("an object is not there");
            }
        }
    }

    void puts(std::size_t count) {
        for (std::size_t at = 0; at < count; at++) table_.put(keys_[0], value_).value();
    }

    void get_many(std::size_t calls) {
        for (std::size_t call = 0; call < calls; call++) {
            std::vector<th::Operation> operations;
            operations.reserve(KEYS);
            for (const auto& key : keys_) operations.push_back(th::Operation::get(table_.id(), key));
            const auto results = db_.execute(operations).value();
            if (results.failed() != 0) throw std::runtime_error("reads of a call failed");
        }
    }

    void put_many(std::size_t calls) {
        for (std::size_t call = 0; call < calls; call++) {
            std::vector<th::Operation> operations;
            operations.reserve(KEYS);
            for (const auto& key : keys_) {
                operations.push_back(th::Operation::put(table_.id(), key, value_));
            }
            const auto results = db_.execute(operations).value();
            if (results.failed() != 0) throw std::runtime_error("writes of a call failed");
        }
    }

    th::Client db_;
    th::Table table_;
    std::string value_;
    std::vector<std::string> keys_;
};

Json reply_to(std::optional<Cost>& cost, const Json& request) {
    if (request.at("store") != "thunderhead") {
        return {{"missing", "the program for C++ has no Redis client"}};
    }
    if (request.at("mode") != "sync") throw std::invalid_argument("there is no such mode");
    if (!cost) cost.emplace(request);
    auto rounds = Json::array();
    for (auto left = request.at("rounds").get<std::size_t>(); left > 0; left--) {
        rounds.push_back(cost->round(request.at("work"), request.at("count")));
    }
    return {{"ns", rounds}};
}

void run() {
    std::cout << R"({"ready":true,"language":"c++","modes":["sync"]})" << std::endl;
    std::optional<Cost> cost;
    for (std::string line; std::getline(std::cin, line);) {
        const auto request = Json::parse(line);
        auto reply = reply_to(cost, request);
        reply["id"] = request.at("id");
        std::cout << reply.dump() << std::endl;
    }
}

} // namespace

int main() {
    try {
        run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
