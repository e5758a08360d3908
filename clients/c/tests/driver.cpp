// The driver of the client for C++: docs/testing/drivers.md says what it reads and writes.
//
// It reads requests from its standard input, one line of JSON each, and writes a reply for each. Each
// client has a thread. A request that makes no sense is a fault of the judge: it ends the driver with
// status 1.
#include "base64.h"
#include "thunderhead.hpp"

#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace th = thunderhead;

namespace {

using Json = nlohmann::ordered_json;

/// Ends the driver because of a fault.
[[noreturn]] void fail(const char* reason) {
    std::fprintf(stderr, "%s\n", reason);
    // Other threads may still use the client.
    std::_Exit(1);
}

template <class Number> Number number_of(const std::string& digits) {
    Number number = 0;
    const char* end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
        throw std::invalid_argument(digits + " is not a number");
    }
    return number;
}

struct Free {
    void operator()(void* data) const noexcept { std::free(data); }
};

std::string decoded(const std::string& text) {
    std::size_t size = 0;
    const std::unique_ptr<void, Free> bytes(base64_decode(text.c_str(), &size));
    if (!bytes) throw std::invalid_argument(text + " is not base64");
    return {static_cast<const char*>(bytes.get()), size};
}

std::string encoded(std::string_view bytes) {
    const std::unique_ptr<char, Free> text(base64_encode(bytes.data(), bytes.size()));
    if (!text) throw std::bad_alloc();
    return text.get();
}

/// A request of the judge. A member that is missing is a fault of the judge.
struct Request {
    Json json;

    [[nodiscard]] std::string text(const char* name) const {
        return json.at(name).get<std::string>();
    }
    [[nodiscard]] std::string bytes(const char* name) const { return decoded(text(name)); }
    [[nodiscard]] std::int64_t number(const char* name) const {
        return number_of<std::int64_t>(text(name));
    }

    [[nodiscard]] th::Condition condition() const {
        const auto found = json.find("if");
        if (found == json.end()) return th::Condition(th_always());
        if (found->is_object()) {
            const auto version = found->at("version").get<std::string>();
            return th::version_is(number_of<std::uint64_t>(version));
        }
        if (*found == "absent") return th::absent();
        if (*found == "present") return th::present();
        throw std::invalid_argument("there is no condition " + found->dump());
    }

    [[nodiscard]] std::vector<std::string> keys() const {
        std::vector<std::string> keys;
        for (const auto& key : json.at("keys")) keys.push_back(decoded(key.get<std::string>()));
        return keys;
    }

    [[nodiscard]] std::vector<std::pair<std::string, std::string>> objects() const {
        std::vector<std::pair<std::string, std::string>> objects;
        for (const auto& pair : json.at("objects")) {
            objects.emplace_back(decoded(pair.at(0).get<std::string>()),
                                 decoded(pair.at(1).get<std::string>()));
        }
        return objects;
    }

    [[nodiscard]] std::invalid_argument unknown() const {
        return std::invalid_argument("there is no operation " + text("op"));
    }
};

// Replies.

Json versioned(std::uint64_t version) { return {{"version", std::to_string(version)}}; }

Json absent() { return {{"absent", true}}; }

Json deleted(std::uint64_t version) { return version == 0 ? absent() : versioned(version); }

Json found(std::uint64_t version, std::string_view value) {
    return {{"version", std::to_string(version)}, {"value", encoded(value)}};
}

Json found(const std::optional<th::Value>& value) {
    return value ? found(value->version(), value->bytes()) : absent();
}

Json summed(std::uint64_t version, std::int64_t sum) {
    return {{"version", std::to_string(version)}, {"sum", std::to_string(sum)}};
}

Json failed(const th::Error& error) {
    return {{"code", error.code()},
            {"outcome", error.outcome() == th::Outcome::not_done ? "not_done" : "unknown"},
            {"version", std::to_string(error.version())},
            {"text", error.message()}};
}

/// Makes the reply of many operations, each with a result of its own.
template <class Results, class Convert> Json each(Results&& results, Convert&& convert) {
    Json replies = Json::array();
    for (auto&& result : results) {
        replies.push_back(result ? convert(*result) : Json{{"error", failed(result.error())}});
    }
    return {{"results", replies}};
}

Json scanned(const th::Table& table) {
    Json objects = Json::array();
    for (const auto& object : table.scan()) {
        objects.push_back({{"key", encoded(object.key())},
                           {"value", encoded(object.value())},
                           {"version", std::to_string(object.version())}});
    }
    return {{"objects", objects}};
}

/// A way to perform the requests of a client. An error of an operation is an exception.
class Mode {
public:
    Mode() = default;
    Mode(const Mode&) = delete;
    Mode& operator=(const Mode&) = delete;
    virtual ~Mode() = default;
    virtual Json perform(const Request& request) = 0;
};

/// A Client, whose calls wait.
class Waiting : public Mode {
public:
    Json perform(const Request& request) override {
        const auto op = request.text("op");
        if (op == "open") {
            db_ = std::make_unique<th::Client>(th::Client::connect(request.text("url")).value());
            return Json::object();
        }
        if (op == "close") {
            db_->close();
            return Json::object();
        }
        const auto name = request.text("table");
        auto known = tables_.find(name);
        if (known == tables_.end()) known = tables_.emplace(name, db_->table(name).value()).first;
        return perform(known->second, op, request);
    }

private:
    static Json perform(const th::Table& table, const std::string& op, const Request& request) {
        if (op == "get_many") {
            const auto keys = request.keys();
            const std::vector<th::View> views(keys.begin(), keys.end());
            return each(table.get_many(views).value(),
                        [](const auto& value) { return found(value); });
        }
        if (op == "put_many") {
            const auto objects = request.objects();
            const std::vector<std::pair<th::View, th::View>> views(objects.begin(), objects.end());
            return each(table.put_many(views).value(), versioned);
        }
        if (op == "scan") return scanned(table);
        const auto key = request.bytes("key");
        const auto condition = request.condition();
        if (op == "get") return found(table.get(key).value());
        if (op == "put") {
            return versioned(table.put_if(key, request.bytes("value"), condition).value());
        }
        if (op == "put_number") {
            return versioned(table.put_number_if(key, request.number("number"), condition).value());
        }
        if (op == "delete") return deleted(table.erase_if(key, condition).value());
        if (op == "increment") {
            const auto sum = table.increment(key, request.number("by")).value();
            return summed(sum.version, sum.value);
        }
        throw request.unknown();
    }

    std::unique_ptr<th::Client> db_;
    std::map<std::string, th::Table> tables_;
};

/// A Queue, as threads share it: each submits operations and waits for their futures.
class Futures : public Mode {
public:
    Json perform(const Request& request) override {
        const auto op = request.text("op");
        if (op == "open") {
            shared_ = shared(request.text("url"));
            url_ = request.text("url");
            return Json::object();
        }
        if (op == "close") {
            shared_.reset();
            return Json::object();
        }
        if (!shared_) throw th::bad_expected_access<th::Error>(th::Error());
        const auto table = find_table(request.text("table"));
        if (op == "get_many") {
            const auto keys = request.keys();
            std::vector<th::Operation> gets;
            for (const auto& key : keys) gets.push_back(th::Operation::get(table, key));
            return all(gets, got);
        }
        if (op == "put_many") {
            const auto objects = request.objects();
            std::vector<th::Operation> puts;
            for (const auto& [key, value] : objects) {
                puts.push_back(th::Operation::put(table, key, value));
            }
            return all(puts, changed);
        }
        // A queue has no scans.
        if (op == "scan") return scanned(th::Client::connect(url_).value().table(table));
        const auto key = request.bytes("key");
        const auto condition = request.condition();
        if (op == "get") return one(request, th::Operation::get(table, key), got);
        if (op == "put") {
            const auto value = request.bytes("value");
            return one(request, th::Operation::put_if(table, key, value, condition), changed);
        }
        if (op == "put_number") {
            const auto number = request.number("number");
            return one(request, th::Operation::put_number_if(table, key, number, condition),
                       changed);
        }
        if (op == "delete") {
            return one(request, th::Operation::erase_if(table, key, condition),
                       [](const th::Effect& it) { return deleted(it.version()); });
        }
        if (op == "increment") {
            return one(request, th::Operation::increment(table, key, request.number("by")),
                       [](const th::Effect& it) { return summed(it.version(), it.integer()); });
        }
        throw request.unknown();
    }

private:
    /// The queue of all clients with the same URL. It is closed after the last one.
    struct Shared {
        th::Queue queue;

        explicit Shared(const std::string& url) : queue(th::Queue::connect(url).value()) {}
        Shared(const Shared&) = delete;
        Shared& operator=(const Shared&) = delete;
        ~Shared() { (void)queue.close(); }
    };

    static std::shared_ptr<Shared> shared(const std::string& url) {
        static std::mutex lock;
        static std::map<std::string, std::weak_ptr<Shared>> queues;
        const std::lock_guard guard(lock);
        auto found = queues[url].lock();
        if (!found) {
            found = std::make_shared<Shared>(url);
            queues[url] = found;
        }
        return found;
    }

    std::uint64_t find_table(const std::string& name) {
        auto known = tables_.find(name);
        if (known == tables_.end()) {
            auto future = shared_->queue.submit(th::Operation::open_table(name)).value();
            known = tables_.emplace(name, future.get().value().table()).first;
        }
        return known->second;
    }

    static Json got(const th::Effect& it) {
        return it.exists() ? found(it.version(), it.value()) : absent();
    }

    static Json changed(const th::Effect& it) { return versioned(it.version()); }

    template <class Convert>
    Json one(const Request& request, const th::Operation& operation, Convert&& convert) {
        auto future = shared_->queue.submit(operation).value();
        if (request.json.contains("cancel")) future.cancel();
        return convert(future.get().value());
    }

    template <class Convert>
    Json all(const std::vector<th::Operation>& operations, Convert&& convert) {
        std::vector<th::Queue::Future> futures;
        for (const auto& operation : operations) {
            futures.push_back(shared_->queue.submit(operation).value());
        }
        std::vector<th::Result<th::Effect>> results;
        for (auto& future : futures) results.push_back(future.get());
        return each(results, convert);
    }

    std::shared_ptr<Shared> shared_;
    std::string url_;
    std::map<std::string, std::uint64_t> tables_;
};

/// Writes the reply of a request.
void write(const Request& request, const char* kind, const Json& content) {
    static std::mutex lock;
    const auto line = Json{{"id", request.json.at("id")}, {kind, content}}.dump();
    const std::lock_guard guard(lock);
    std::puts(line.c_str());
    std::fflush(stdout);
}

/// A client and its thread.
class Performer {
public:
    explicit Performer(const std::string& mode) {
        if (mode == "sync") {
            mode_ = std::make_unique<Waiting>();
        } else if (mode == "async") {
            mode_ = std::make_unique<Futures>();
        } else {
            throw std::invalid_argument("there is no mode " + mode);
        }
        thread_ = std::thread([this] { run(); });
    }

    Performer(const Performer&) = delete;
    Performer& operator=(const Performer&) = delete;

    /// Waits for the end of all requests, and closes the client.
    ~Performer() {
        push(std::nullopt);
        thread_.join();
    }

    /// Begins a request. Nothing is the end.
    void push(std::optional<Request> request) {
        {
            const std::lock_guard guard(lock_);
            requests_.push_back(std::move(request));
        }
        changed_.notify_one();
    }

private:
    std::optional<Request> take() {
        std::unique_lock guard(lock_);
        changed_.wait(guard, [this] { return !requests_.empty(); });
        auto request = std::move(requests_.front());
        requests_.pop_front();
        return request;
    }

    void run() noexcept {
        while (const auto request = take()) {
            try {
                write(*request, "ok", mode_->perform(*request));
            } catch (const th::bad_expected_access<th::Error>& error) {
                write(*request, "error", failed(error.error()));
            } catch (const std::exception& error) {
                fail(error.what());
            }
        }
        mode_.reset();
    }

    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<std::optional<Request>> requests_;
    std::unique_ptr<Mode> mode_;
    std::thread thread_;
};

void run() {
    std::map<std::int64_t, std::unique_ptr<Performer>> performers;
    for (std::string line; std::getline(std::cin, line);) {
        Request request{Json::parse(line)};
        const auto client = request.json.at("client").get<std::int64_t>();
        if (request.text("op") == "open") {
            // A client that is opened again gets another performer, which may be of another mode.
            performers.erase(client);
            performers[client] = std::make_unique<Performer>(request.text("mode"));
        }
        const auto found = performers.find(client);
        if (found == performers.end()) {
            throw std::invalid_argument("the client " + std::to_string(client) + " is not open");
        }
        found->second->push(std::move(request));
    }
}

} // namespace

int main() {
    std::puts(R"({"ready":true,"language":"c++","modes":["sync","async"],"cancels":["async"]})");
    std::fflush(stdout);
    try {
        run();
    } catch (const std::exception& error) {
        fail(error.what());
    }
}
