// The header for C++.
#include "server.h"
#include "thunderhead.hpp"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <ranges>
#include <thread>

using namespace std::chrono_literals;
namespace th = thunderhead;

namespace {

test_server store;

/// A client and a new table.
struct Fixture {
    th::Client db = th::Client::connect(store.url).value();
    th::Table table = db.create_table(next_name()).value();

    static std::string next_name() {
        static std::atomic<int> number = 0;
        return "table" + std::to_string(number++);
    }
};

static_assert(!std::is_copy_constructible_v<th::Client> && std::is_move_constructible_v<th::Client>);
static_assert(!std::is_copy_constructible_v<th::Queue> && std::is_move_assignable_v<th::Queue>);
static_assert(!std::is_copy_constructible_v<th::Scan> && std::is_move_constructible_v<th::Scan>);
static_assert(std::ranges::input_range<th::Scan>);

TEST(Client, ObjectsAreWrittenReadAndDeleted) {
    Fixture f;
    EXPECT_FALSE(f.table.get("ada").value().has_value());
    const auto version = f.table.put("ada", "analyst").value();
    const auto found = f.table.get("ada").value();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->version(), version);
    EXPECT_EQ(found->bytes(), "analyst");
    EXPECT_EQ(f.table.borrow("ada").value()->bytes(), "analyst");
    EXPECT_EQ(f.table.erase("ada").value(), version);
    EXPECT_EQ(f.table.erase("ada").value(), 0u);
}

TEST(Client, KeysAndValuesAreAnyBytes) {
    Fixture f;
    const std::string text("a\0b", 3);
    const std::vector<unsigned char> bytes = {0, 255, 7};
    const std::array<std::byte, 2> key = {std::byte{1}, std::byte{0}};
    f.table.put(text, bytes).value();
    f.table.put(key, std::string_view("view")).value();
    f.table.put(std::span<const std::byte>(key), std::span<const unsigned char>(bytes)).value();
    EXPECT_EQ(f.table.get(text).value()->span().size(), 3u);
    EXPECT_EQ(f.table.get(text).value()->span()[1], std::byte{255});
    EXPECT_EQ(f.table.get(key).value()->bytes().size(), 3u);
    EXPECT_FALSE(f.table.get("a").value());
}

TEST(Client, AConditionDecidesAnUpdate) {
    Fixture f;
    const auto first = f.table.put_if("k", "v", th::absent()).value();
    const auto again = f.table.put_if("k", "v", th::absent());
    ASSERT_FALSE(again);
    EXPECT_TRUE(again.error().condition_failed());
    EXPECT_FALSE(again.error().unknown());
    EXPECT_EQ(again.error().version(), first);
    EXPECT_EQ(again.error().outcome(), th::Outcome::not_done);
    EXPECT_EQ(again.error().name(), "TH_CONDITION_FAILED");
    const auto second = f.table.put_if("k", "w", th::version_is(first)).value();
    EXPECT_FALSE(f.table.erase_if("k", th::version_is(first)));
    EXPECT_TRUE(f.table.put_if("k", "w", th::version_below(second + 1)));
    EXPECT_TRUE(f.table.erase_if("k", th::present()));
}

TEST(Client, ValueOfAFailureThrows) {
    Fixture f;
    const auto failed = f.table.put("", "v");
    EXPECT_EQ(failed.error().code(), TH_KEY_EMPTY);
    try {
        (void)failed.value();
        FAIL() << "it did not throw";
    } catch (const th::bad_expected_access<th::Error>& failure) {
        EXPECT_EQ(failure.error().code(), TH_KEY_EMPTY);
        EXPECT_GT(failure.error().message().size(), 10u);
    }
    EXPECT_EQ(failed.value_or(5), 5u);
}

TEST(Client, NumbersAreCounted) {
    Fixture f;
    EXPECT_EQ(f.table.increment("n").value().value, 1);
    EXPECT_EQ(f.table.increment("n", -3).value().value, -2);
    EXPECT_EQ(f.table.get("n").value()->int64(), -2);
    EXPECT_GT(f.table.put_number("n", 40).value(), 0u);
    EXPECT_EQ(f.table.increment("n", 2u).value().value, 42);
    f.table.put_number("r", 1.5).value();
    EXPECT_EQ(f.table.increment("r", 0.25).value().value, 1.75);
    EXPECT_EQ(f.table.get("r").value()->real(), 1.75);
    const auto refused = f.table.increment("r", 1);
    EXPECT_EQ(refused.error().code(), TH_NOT_A_NUMBER);
    EXPECT_EQ(refused.error().version(), f.table.get("r").value()->version());
}

TEST(Client, ANumberIsWrittenUnderACondition) {
    Fixture f;
    const auto first = f.table.put_number_if("n", 40, th::absent()).value();
    const auto again = f.table.put_number_if("n", 1.5, th::absent());
    EXPECT_TRUE(again.error().condition_failed());
    EXPECT_EQ(again.error().version(), first);
    const auto sum = f.table.increment("n", 2).value();
    EXPECT_EQ(sum.value, 42);
    f.table.put_number_if("n", 1.5, th::version_is(sum.version)).value();
    EXPECT_EQ(f.table.get("n").value()->real(), 1.5);
    EXPECT_EQ(f.table.put_number_if("", 1, th::absent()).error().code(), TH_KEY_EMPTY);
    const th::Table table = std::move(f.table);
    EXPECT_EQ(f.table.put_number_if("n", 1, th::absent()).error().code(), TH_CLOSED);
}

TEST(Client, AnObjectLivesForItsTime) {
    Fixture f;
    EXPECT_FALSE(f.table.ttl("k").value());
    EXPECT_EQ(f.table.expire("k", 1s).value(), 0u);
    const auto version = f.table.put("k", "v", 60s).value();
    const auto left = f.table.ttl("k").value();
    ASSERT_TRUE(left);
    EXPECT_GT(*left, 0ms);
    EXPECT_LE(*left, 60s);
    EXPECT_TRUE(f.table.expire_if("k", 1ms, th::version_is(version + 1)).error().condition_failed());
    EXPECT_GT(f.table.expire("k", th::forever).value(), version);
    EXPECT_EQ(f.table.ttl("k").value(), th::forever);
    const auto next = f.table.put_if("k", "w", th::present(), 1h).value();
    EXPECT_LE(*f.table.ttl("k").value(), 1h);
    EXPECT_GT(f.table.put_number("k", 7, 1ms).value(), next);
    while (f.table.get("k").value()) {}
    f.table.put_number_if("k", 1.5, th::absent(), 1h).value();
    EXPECT_LE(*f.table.ttl("k").value(), 1h);
    // A time that is not positive is over at once.
    f.table.put("k", "v", -5ms).value();
    while (f.table.get("k").value()) {}
    const th::Table table = std::move(f.table);
    EXPECT_EQ(f.table.ttl("k").error().code(), TH_CLOSED);
    EXPECT_EQ(f.table.put("k", "v", 1s).error().code(), TH_CLOSED);
}

TEST(Client, ManyObjectsGetTheirTimesAtOnce) {
    Fixture f;
    const std::vector<std::pair<th::View, th::View>> pairs = {{"a", "1"}, {"b", "2"}};
    const auto versions = f.table.put_many(pairs, 1h).value();
    for (const auto& version : versions) EXPECT_GT(version.value(), 0u);
    const std::vector operations = {
        th::Operation::put_if(f.table.id(), "c", "3", th::absent()).ttl(1h),
        th::Operation::expire(f.table.id(), "a", th::forever),
        th::Operation::expire_if(f.table.id(), "b", 2h, th::version_is(1)),
        th::Operation::get_ttl(f.table.id(), "b"),
    };
    const auto results = f.db.execute(operations).value();
    EXPECT_EQ(results.failed(), 1u);
    EXPECT_TRUE(results[2].error().condition_failed());
    EXPECT_LE(results[3].value().ttl(), 1h);
    EXPECT_EQ(f.table.ttl("a").value(), th::forever);
    EXPECT_LE(*f.table.ttl("c").value(), 1h);
}

TEST(Client, ATableKeepsItsOptions) {
    Fixture f;
    const auto name = Fixture::next_name();
    auto table = f.db.create_table(name, {.ttl = 1h, .policy = th::Policy::cache, .max_bytes = 1 << 20,
                                         .reserved_bytes = 1 << 10}).value();
    table.put("k", "v").value();
    EXPECT_LE(*table.ttl("k").value(), 1h);
    auto options = f.db.describe(name).value().options;
    EXPECT_EQ(options.ttl, 1h);
    EXPECT_EQ(options.policy, th::Policy::cache);
    EXPECT_EQ(options.max_bytes, 1u << 20);
    EXPECT_EQ(options.reserved_bytes, 1u << 10);
    const auto wrong = f.db.create_table(Fixture::next_name(), {.reserved_bytes = 5});
    EXPECT_EQ(wrong.error().code(), TH_BAD_OPTIONS);
    auto small = f.db.create_table(Fixture::next_name(), {.max_bytes = 1000}).value();
    EXPECT_EQ(small.put("k", std::string(1000, 'v')).error().code(), TH_TABLE_FULL);
    EXPECT_EQ(f.db.ensure_table(name, {.ttl = 2h}).value().id(), table.id());
    EXPECT_EQ(f.db.describe(name).value().options.ttl, 1h);
    const auto other = Fixture::next_name();
    EXPECT_GT(f.db.ensure_table(other, {.ttl = 2h}, 1).value().id(), table.id());
    EXPECT_EQ(f.db.describe(other).value().options.ttl, 2h);
    const auto plain = Fixture::next_name();
    EXPECT_GT(f.db.ensure_table(plain).value().id(), table.id());
    options = f.db.describe(plain).value().options;
    EXPECT_EQ(options.ttl, th::forever);
    EXPECT_EQ(options.policy, th::Policy::durable);
}

TEST(Client, ManyObjectsGoTogether) {
    Fixture f;
    std::vector<std::string> names;
    for (int at = 0; at < 250; at++) names.push_back("name" + std::to_string(at));
    std::vector<std::pair<th::View, th::View>> pairs;
    for (const auto& name : names) pairs.emplace_back(name, name);
    const auto versions = f.table.put_many(pairs).value();
    ASSERT_EQ(versions.size(), names.size());
    EXPECT_GT(versions.back().value(), 0u);
    std::vector<th::View> keys(names.begin(), names.end());
    keys.emplace_back("missing");
    auto found = f.table.get_many(keys).value();
    EXPECT_EQ(found[249].value()->bytes(), "name249");
    EXPECT_FALSE(found[250].value());
    const auto erased = f.table.erase_many(keys).value();
    EXPECT_GT(erased[0].value(), 0u);
    EXPECT_EQ(erased[250].value(), 0u);
    keys.emplace_back("");
    EXPECT_EQ(f.table.get_many(keys).error().code(), TH_KEY_EMPTY);
}

TEST(Client, OperationsOfAllKindsGoTogether) {
    Fixture f;
    const auto id = f.table.id();
    const th::Operation operations[] = {
        th::Operation::put(id, "a", "1"),          th::Operation::get(id, "missing"),
        th::Operation::increment(id, "n", 2),      th::Operation::increment(id, "r", 0.5),
        th::Operation::put_number(id, "m", 2),     th::Operation::put_number(id, "q", 2.5),
        th::Operation::put_if(id, "c", "v", th::present()),
        th::Operation::erase_if(id, "d", th::absent()),
    };
    const auto results = f.db.execute(operations).value();
    ASSERT_EQ(results.size(), 8u);
    EXPECT_EQ(results.failed(), 1u);
    EXPECT_GT(results[0]->version(), 0u);
    EXPECT_FALSE(results[1]->exists());
    EXPECT_EQ(results[2]->integer(), 2);
    EXPECT_EQ(results[3]->real(), 0.5);
    EXPECT_TRUE(results[6].error().condition_failed());
}

TEST(Client, AScanIsARangeOfAllObjects) {
    Fixture f;
    for (int at = 0; at < 2000; at++) f.table.put(std::to_string(at), "value").value();
    f.table.put_number("number", 3).value();
    std::map<std::string, int> seen;
    for (const auto& object : f.table.scan()) {
        seen[std::string(object.key())]++;
        if (object.kind() == th::Kind::int64) {
            EXPECT_EQ(object.int64(), 3);
        }
    }
    EXPECT_EQ(seen.size(), 2001u);
    EXPECT_TRUE(std::ranges::all_of(seen, [](const auto& it) { return it.second == 1; }));
    auto scan = f.table.scan();
    EXPECT_EQ(std::ranges::distance(scan | std::views::take(5)), 5);
}

TEST(Client, AFailedScanIsLoud) {
    Fixture f;
    auto dropped = f.db.create_table("dropped").value();
    f.db.drop_table("dropped").value();
    const auto go_through = [&] {
        for (const auto& object : dropped.scan()) (void)object;
    };
    EXPECT_THROW(go_through(), th::bad_expected_access<th::Error>);
    auto scan = dropped.scan();
    EXPECT_EQ(scan.next().error().code(), TH_NO_SUCH_TABLE_ID);
    EXPECT_EQ(scan.next().error().code(), TH_NO_SUCH_TABLE_ID);
}

TEST(Client, TablesAreMadeFoundSplitAndDropped) {
    auto db = th::Client::connect(store.url).value();
    EXPECT_EQ(db.table("no such table").error().code(), TH_NO_SUCH_TABLE);
    const auto made = db.ensure_table("made").value().id();
    EXPECT_EQ(db.ensure_table("made").value().id(), made);
    EXPECT_EQ(db.create_table("made").error().code(), TH_TABLE_EXISTS);
    const auto hash = th::key_hash("k").value();
    db.split("made", hash).value();
    const auto info = db.describe("made").value();
    ASSERT_EQ(info.tablets.size(), 2u);
    EXPECT_EQ(info.tablets[1].first, hash);
    EXPECT_FALSE(info.tablets[1].address.empty());
    EXPECT_TRUE(std::ranges::any_of(db.tables().value(), [](auto& it) { return it.name == "made"; }));
    EXPECT_FALSE(db.migrate("made", hash, 99999, 5s));
    EXPECT_EQ(db.table(std::string_view("a\0b", 3)).error().code(), TH_BAD_NAME);
    EXPECT_EQ(db.table("caf\xe9").error().code(), TH_NOT_UTF8);
    db.drop_table("made").value();
    EXPECT_EQ(db.describe("made").error().code(), TH_NO_SUCH_TABLE);
}

TEST(Client, AClosedOrMovedClientRefusesEveryCall) {
    Fixture f;
    auto scan = f.table.scan();
    th::Client moved = std::move(f.db);
    EXPECT_TRUE(f.table.put("k", "v"));
    EXPECT_EQ(f.db.tables().error().code(), TH_CLOSED);
    EXPECT_EQ(f.db.set_deadline(1s).error().code(), TH_CLOSED);
    th::Table table = std::move(f.table);
    EXPECT_EQ(f.table.get("k").error().code(), TH_CLOSED);
    moved.close();
    moved.close();
    EXPECT_EQ(table.get("k").error().code(), TH_CLOSED);
    EXPECT_EQ(table.increment("k").error().code(), TH_CLOSED);
    EXPECT_EQ(table.scan().next().error().code(), TH_CLOSED);
    EXPECT_EQ(scan.next().error().code(), TH_CLOSED);
    EXPECT_EQ(th::Client::connect("nonsense").error().code(), TH_BAD_URL);
}

TEST(Client, AnInterruptEndsAWait) {
    auto other = server_start(nullptr, nullptr);
    std::atomic<bool> stop = false;
    auto db = th::Client::connect(other.url, {.deadline = 1h,
                                              .interrupt = [&] { return stop.load(); },
                                              .interrupt_every = 1ms})
                  .value();
    auto table = db.create_table("t").value();
    table.put("k", "v").value();
    server_kill(&other);
    EXPECT_NE(table.with_deadline(5ms).get("k").error().code(), TH_CANCELLED);
    stop = true;
    EXPECT_EQ(table.get("k").error().code(), TH_CANCELLED);
}

TEST(Queue, CallbacksRunOnTheThreadThatDrains) {
    Fixture f;
    auto queue = th::Queue::connect(store.url).value();
    const auto thread = std::this_thread::get_id();
    int done = 0;
    for (int at = 0; at < 300; at++) {
        // The key is copied before submit returns.
        const auto key = std::to_string(at);
        queue
            .submit(th::Operation::put(f.table.id(), key, key),
                    [&](th::Result<th::Effect> result) {
                        EXPECT_GT(result.value().version(), 0u);
                        EXPECT_EQ(std::this_thread::get_id(), thread);
                        done++;
                    })
            .value();
    }
    EXPECT_EQ(done, 0);
    std::size_t drained = 0;
    while (done < 300) {
        pollfd polled{queue.fd(), POLLIN, 0};
        EXPECT_GE(::poll(&polled, 1, -1), 0);
        drained += queue.drain().value();
    }
    EXPECT_EQ(drained, 300u);
    EXPECT_EQ(queue.drain().value(), 0u);
    EXPECT_EQ(f.table.get("299").value()->bytes(), "299");
}

TEST(Queue, AFutureWaitsByItself) {
    Fixture f;
    auto queue = th::Queue::connect(store.url).value();
    auto put = queue.submit(th::Operation::put(f.table.id(), "k", "v")).value();
    EXPECT_GT(put.get().value().version(), 0u);
    auto get = queue.submit(th::Operation::get(f.table.id(), "k")).value();
    EXPECT_EQ(get.get().value().value(), "v");
    EXPECT_EQ(get.get().value().value(), "v");
    auto failed = queue.submit(th::Operation::put_if(f.table.id(), "k", "v", th::absent())).value();
    EXPECT_TRUE(failed.get().error().condition_failed());
    auto table = queue.submit(th::Operation::create_table("async")).value();
    const auto id = table.get().value().table();
    EXPECT_EQ(queue.submit(th::Operation::open_table("async")).value().get().value().table(), id);
    EXPECT_TRUE(queue.submit(th::Operation::drop_table("async")).value().get());
    EXPECT_EQ(queue.submit(th::Operation::get(id, "")).error().code(), TH_KEY_EMPTY);
    EXPECT_EQ(th::Queue::Future().get().error().code(), TH_CLOSED);
}

TEST(Queue, AnyThreadMayUseIt) {
    Fixture f;
    auto queue = th::Queue::connect(store.url).value();
    std::vector<std::thread> threads;
    for (int at = 0; at < 4; at++) {
        threads.emplace_back([&] {
            for (int each = 0; each < 100; each++) {
                auto sum = queue.submit(th::Operation::increment(f.table.id(), "n", 1)).value();
                EXPECT_GT(sum.get().value().integer(), 0);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(f.table.get("n").value()->int64(), 400);
}

TEST(Queue, AThreadDoesNotWaitForTheResultsOfOthers) {
    auto other = server_start(nullptr, nullptr);
    auto db = th::Client::connect(other.url).value();
    const auto id = db.create_table("t").value().id();
    auto queue = th::Queue::connect(other.url).value();
    server_kill(&other);
    const auto read = [&] {
        return queue.submit(th::Operation::get(id, "k").deadline(1min)).value();
    };
    std::vector<std::thread> threads;
    std::vector<th::Queue::Future> futures;
    std::atomic<int> waiting = 0;
    for (int at = 0; at < 3; at++) {
        futures.push_back(read());
        threads.emplace_back([&, future = futures.back()]() mutable {
            waiting++;
            EXPECT_EQ(future.get().error().code(), TH_CANCELLED);
            waiting--;
        });
    }
    while (waiting < 3) std::this_thread::yield();
    // A cancelled read has its result at once.
    for (int at = 0; at < 100; at++) {
        auto cancelled = read();
        cancelled.cancel();
        EXPECT_EQ(cancelled.get().error().code(), TH_CANCELLED);
    }
    EXPECT_EQ(waiting, 3);
    // Each thread returns, in any order of the results.
    futures[1].cancel();
    while (waiting > 2) std::this_thread::yield();
    futures[0].cancel();
    while (waiting > 1) std::this_thread::yield();
    futures[2].cancel();
    for (auto& thread : threads) thread.join();
}

TEST(Queue, ACallbackThatThrowsLosesNoOther) {
    Fixture f;
    auto queue = th::Queue::connect(store.url).value();
    int calls = 0;
    for (int at = 0; at < 10; at++) {
        queue
            .submit(th::Operation::get(f.table.id(), "k"),
                    [&](const auto&) {
                        if (++calls == 3) throw std::runtime_error("a callback");
                    })
            .value();
    }
    queue.close().value();
    EXPECT_THROW((void)queue.drain(), std::runtime_error);
    EXPECT_EQ(calls, 3);
    (void)queue.drain();
    EXPECT_EQ(calls, 10);
    EXPECT_EQ(queue.drain().error().code(), TH_CLOSED);
    EXPECT_EQ(queue.submit(th::Operation::get(f.table.id(), "k")).error().code(), TH_CLOSED);
}

TEST(Queue, ACancelledOperationSaysWhetherItWasDone) {
    auto other = server_start(nullptr, nullptr);
    auto db = th::Client::connect(other.url).value();
    const auto id = db.create_table("t").value().id();
    auto queue = th::Queue::connect(other.url).value();
    queue.submit(th::Operation::put(id, "k", "v")).value().get().value();
    server_kill(&other);
    auto read = queue.submit(th::Operation::get(id, "k").deadline(1h)).value();
    read.cancel();
    EXPECT_EQ(read.get().error().code(), TH_CANCELLED);
    auto write = queue.submit(th::Operation::put(id, "k", "v").deadline(1h)).value();
    write.cancel();
    const auto written = write.get();
    EXPECT_EQ(written.error().unknown(), written.error().code() == TH_OUTCOME_UNKNOWN);
}

} // namespace

int main(int count, char** arguments) {
    testing::InitGoogleTest(&count, arguments);
    store = server_start(nullptr, nullptr);
    const int code = RUN_ALL_TESTS();
    server_stop(&store);
    return code;
}
