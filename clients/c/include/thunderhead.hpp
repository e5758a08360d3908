// Thunderhead: a durable, exactly-once key-value store in memory. The client for C++20.
//
// A header only, over the library for C: link with -lthunderhead.
//
//     auto db = thunderhead::Client::connect("thunderhead://localhost").value();
//     auto users = db.table("users").value();
//     auto version = users.put("ada", "analyst").value();
//     auto put = users.put_if("ada", "countess", thunderhead::version_is(version));
//     if (!put && put.error().unknown()) { /* look at the data before you repeat the update */ }
//     for (const auto& object : users.scan()) std::cout << object.key() << '\n';
//
// - Functions return a Result: std::expected where the library has it, else a small one of the same
//   shape. `value()` throws bad_expected_access<Error>. Nothing else throws, except std::bad_alloc
//   and the iterators of a scan. The header also works with -fno-exceptions.
// - Objects are move-only and release their handles. A moved-from or closed object refuses each
//   call with TH_CLOSED.
// - A Client, with its tables and scans, is for one thread at a time. A Queue is for all threads.
// - Keys and values are bytes. Texts, strings, vectors and spans of bytes are all accepted.
#ifndef THUNDERHEAD_HPP
#define THUNDERHEAD_HPP

#include "thunderhead.h"

#include <algorithm>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
#include <version>

#include <cerrno>
#include <poll.h>

#if defined(__cpp_lib_expected) && __cpp_lib_expected >= 202202L
#include <expected>
#define THUNDERHEAD_STD_EXPECTED 1
// The two kinds of Result have different names for the linker, so that files which are compiled
// for C++20 and for C++23 can be linked together.
#define THUNDERHEAD_ABI v0_std
#else
#define THUNDERHEAD_STD_EXPECTED 0
#define THUNDERHEAD_ABI v0_own
#endif

namespace thunderhead {
inline namespace THUNDERHEAD_ABI {

/// Whether an update was done.
enum class Outcome {
    done = TH_DONE,
    not_done = TH_NOT_DONE,
    /// It may have been done or not.
    unknown = TH_UNKNOWN,
};

/// The reason why a call failed.
class Error {
public:
    Error() = default;
    Error(th_status code, Outcome outcome, std::uint64_t version, std::string message)
        : code_(code), outcome_(outcome), version_(version), message_(std::move(message)) {}

    /// The status: TH_CONDITION_FAILED and so on.
    [[nodiscard]] th_status code() const noexcept { return code_; }
    /// The name of the status.
    [[nodiscard]] std::string_view name() const noexcept { return th_status_name(code_); }
    /// Whether the update was done.
    [[nodiscard]] Outcome outcome() const noexcept { return outcome_; }
    /// Whether an update may have been done though it failed.
    [[nodiscard]] bool unknown() const noexcept { return outcome_ == Outcome::unknown; }
    /// Whether the condition of an update did not hold.
    [[nodiscard]] bool condition_failed() const noexcept { return code_ == TH_CONDITION_FAILED; }
    /// The version that the object has, after a failed condition and if it is not a number.
    [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
    /// A sentence for people.
    [[nodiscard]] const std::string& message() const noexcept { return message_; }

private:
    th_status code_ = TH_CLOSED;
    Outcome outcome_ = Outcome::not_done;
    std::uint64_t version_ = 0;
    std::string message_ = "the handle is closed; nothing was done";
};

#if THUNDERHEAD_STD_EXPECTED

template <class E> using bad_expected_access = std::bad_expected_access<E>;
template <class T> using Result = std::expected<T, Error>;

namespace detail {
using Failed = std::unexpected<Error>;
inline Failed failed(Error error) { return Failed(std::move(error)); }
} // namespace detail

#else

/// `value()` of a Result without a value throws it.
template <class E> class bad_expected_access : public std::exception {
public:
    explicit bad_expected_access(E error) : error_(std::move(error)) {}
    [[nodiscard]] const char* what() const noexcept override { return error_.message().c_str(); }
    [[nodiscard]] const E& error() const noexcept { return error_; }

private:
    E error_;
};

namespace detail {

struct Failed {
    Error error;
};

inline Failed failed(Error error) { return Failed{std::move(error)}; }

[[noreturn]] inline void no_value(const Error& error) {
#if defined(__cpp_exceptions)
    throw bad_expected_access<Error>(error);
#else
    (void)error;
    std::abort();
#endif
}

} // namespace detail

/// A value, or the reason why there is none. Has the shape of std::expected.
template <class T> class [[nodiscard]] Result {
public:
    using value_type = T;
    using error_type = Error;

    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(detail::Failed failed) : state_(std::in_place_index<1>, std::move(failed.error)) {}

    [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }
    T& value() & { return need(), *std::get_if<0>(&state_); }
    const T& value() const& { return need(), *std::get_if<0>(&state_); }
    T&& value() && { return need(), std::move(*std::get_if<0>(&state_)); }
    template <class U> T value_or(U&& other) const& {
        return has_value() ? **this : static_cast<T>(std::forward<U>(other));
    }
    T& operator*() & noexcept { return *std::get_if<0>(&state_); }
    const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
    T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
    T* operator->() noexcept { return std::get_if<0>(&state_); }
    const T* operator->() const noexcept { return std::get_if<0>(&state_); }
    Error& error() & noexcept { return *std::get_if<1>(&state_); }
    const Error& error() const& noexcept { return *std::get_if<1>(&state_); }
    Error&& error() && noexcept { return std::move(*std::get_if<1>(&state_)); }

private:
    void need() const {
        if (!has_value()) detail::no_value(error());
    }

    std::variant<T, Error> state_;
};

template <> class [[nodiscard]] Result<void> {
public:
    using value_type = void;
    using error_type = Error;

    Result() = default;
    Result(detail::Failed failed) : error_(std::move(failed.error)) {}

    [[nodiscard]] bool has_value() const noexcept { return !error_; }
    explicit operator bool() const noexcept { return has_value(); }
    void value() const {
        if (error_) detail::no_value(*error_);
    }
    Error& error() & noexcept { return *error_; }
    const Error& error() const& noexcept { return *error_; }
    Error&& error() && noexcept { return std::move(*error_); }

private:
    std::optional<Error> error_;
};

#endif

namespace detail {

/// Throws an error, or ends the program if it is compiled without exceptions.
[[noreturn]] inline void raise(Error error) {
#if defined(__cpp_exceptions)
    throw bad_expected_access<Error>(std::move(error));
#else
    (void)error;
    std::abort();
#endif
}

template <class T>
concept Byte = std::same_as<std::remove_cv_t<T>, std::byte> ||
               std::same_as<std::remove_cv_t<T>, unsigned char> ||
               std::same_as<std::remove_cv_t<T>, char> ||
               std::same_as<std::remove_cv_t<T>, char8_t>;

template <class T>
concept ByteRange = requires(const T& range) {
    { std::data(range) };
    { std::size(range) } -> std::convertible_to<std::size_t>;
    requires Byte<std::remove_pointer_t<decltype(std::data(range))>>;
};

template <class T>
concept Number = std::integral<T> || std::floating_point<T>;

/// A literal ends with a zero that is not part of the text.
template <class T>
constexpr bool is_literal =
    std::is_array_v<T> && std::same_as<std::remove_cv_t<std::remove_extent_t<T>>, char>;

/// The error of a C call.
class Report {
public:
    Report() : error_(th_error_init()) {}
    operator th_error*() noexcept { return &error_; }
    [[nodiscard]] Error take(th_status status) const {
        // A refused th_error stays empty. It never is, because this header sets its size.
        return Error(status, static_cast<Outcome>(error_.outcome), error_.version, error_.text);
    }

private:
    th_error error_;
};

/// Microseconds for the library: at least 1, because 0 means the default.
inline std::uint64_t microseconds(std::chrono::microseconds time) {
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 1;
}

/// Calls a function of C, and returns its error, if it has one.
template <class Call> std::optional<Error> failure(Call&& call) {
    Report report;
    const th_status status = call(static_cast<th_error*>(report));
    if (status == TH_OK) [[likely]] return std::nullopt;
    return report.take(status);
}

} // namespace detail

/// Some bytes that belong to the caller: a key, or a value to write.
class View {
public:
    constexpr View() noexcept = default;
    /// A text, without its terminating zero.
    constexpr View(const char* text) noexcept : View(std::string_view(text)) {}
    constexpr View(std::string_view text) noexcept : data_(text.data()), size_(text.size()) {}
    /// A string, a vector, an array or a span of bytes.
    template <detail::ByteRange Range>
        requires(!std::same_as<Range, std::string_view> && !detail::is_literal<Range>)
    constexpr View(const Range& range) noexcept : data_(std::data(range)), size_(std::size(range)) {}
    View(const void* data, std::size_t size) noexcept : data_(data), size_(size) {}

    [[nodiscard]] th_slice slice() const noexcept { return th_bytes(data_, size_); }

private:
    const void* data_ = nullptr;
    std::size_t size_ = 0;
};

/// The condition of an update.
class Condition {
public:
    constexpr explicit Condition(th_condition condition) noexcept : condition_(condition) {}
    [[nodiscard]] constexpr th_condition get() const noexcept { return condition_; }

private:
    th_condition condition_;
};

/// As a time to live: the object never expires.
inline constexpr std::chrono::milliseconds forever = std::chrono::milliseconds::max();

/// The behaviour of a table when memory is full.
enum class Policy : std::uint32_t {
    /// Its objects stay, and writes are refused.
    durable = TH_DURABLE,
    /// Objects that were not used lately make room for new ones.
    cache = TH_CACHE,
};

/// The options of a new table. They never change afterwards. A cluster that an earlier release made
/// must be switched to format 2 first: TH_OLD_FORMAT.
struct TableOptions {
    /// How long an object lives if its write names no time.
    std::chrono::milliseconds ttl = forever;
    Policy policy = Policy::durable;
    /// The most bytes of its objects, with their keys and headers. 0: there is no limit. A durable
    /// table refuses writes that would exceed it, with TH_TABLE_FULL; a cache evicts its own objects.
    std::uint64_t max_bytes = 0;
    /// The bytes of a cache of which none are evicted for other tables.
    std::uint64_t reserved_bytes = 0;

    /// The same options for C.
    [[nodiscard]] th_table_options c_options() const noexcept;
};

/// The object does not exist.
[[nodiscard]] inline Condition absent() noexcept { return Condition(th_absent()); }
/// The object exists.
[[nodiscard]] inline Condition present() noexcept { return Condition(th_present()); }
/// The object has this version.
[[nodiscard]] inline Condition version_is(std::uint64_t version) noexcept {
    return Condition(th_version_is(version));
}
/// The object has a version below this one, or does not exist.
[[nodiscard]] inline Condition version_below(std::uint64_t version) noexcept {
    return Condition(th_version_below(version));
}

namespace detail {

/// A time to live for the library: at least 1, because 0 means the table's default.
inline std::uint64_t milliseconds(std::chrono::milliseconds ttl) noexcept {
    if (ttl == forever) return TH_NEVER;
    return ttl.count() > 0 ? static_cast<std::uint64_t>(ttl.count()) : 1;
}

/// A time to live of the library.
inline std::chrono::milliseconds time_of(std::uint64_t ttl_ms) noexcept {
    const auto most = static_cast<std::uint64_t>(forever.count());
    return ttl_ms >= most ? forever : std::chrono::milliseconds(ttl_ms);
}

inline std::string_view text(th_slice slice) noexcept {
    return {static_cast<const char*>(slice.data), slice.size};
}

inline th_slice slice(std::string_view text) noexcept { return th_bytes(text.data(), text.size()); }

/// The value of an object, with its bytes in a `Bytes`.
template <class Bytes> class BasicValue {
public:
    BasicValue(std::uint64_t version, Bytes bytes) : version_(version), bytes_(std::move(bytes)) {}

    [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
    [[nodiscard]] const Bytes& bytes() const& noexcept { return bytes_; }
    [[nodiscard]] Bytes bytes() && noexcept { return std::move(bytes_); }
    [[nodiscard]] std::span<const std::byte> span() const noexcept {
        return std::as_bytes(std::span(bytes_.data(), bytes_.size()));
    }
    /// The whole number that `put_number` or `increment` wrote; 0 if the value has not 8 bytes.
    [[nodiscard]] std::int64_t int64() const noexcept { return th_int64_of(slice(bytes_)); }
    /// The floating-point number that `put_number` or `increment` wrote.
    [[nodiscard]] double real() const noexcept { return th_double_of(slice(bytes_)); }

private:
    std::uint64_t version_;
    Bytes bytes_;
};

} // namespace detail

inline th_table_options TableOptions::c_options() const noexcept {
    th_table_options options = th_table_options_init();
    options.ttl_ms = detail::milliseconds(ttl);
    options.policy = static_cast<std::uint32_t>(policy);
    options.max_bytes = max_bytes;
    options.reserved_bytes = reserved_bytes;
    return options;
}

/// The value of an object.
using Value = detail::BasicValue<std::string>;
/// The value of an object whose bytes belong to the client until the next call on it.
using BorrowedValue = detail::BasicValue<std::string_view>;

/// A sum, and the version that the object has now.
template <class Number> struct Sum {
    Number value;
    std::uint64_t version;
};

/// The kind of a value.
enum class Kind { bytes = TH_BYTES, int64 = TH_INT64, real = TH_DOUBLE };

/// An object that a scan returns. Its bytes are valid until the scan goes on.
class Object {
public:
    [[nodiscard]] std::string_view key() const noexcept { return detail::text(object_.key); }
    [[nodiscard]] std::string_view value() const noexcept { return detail::text(object_.value); }
    [[nodiscard]] std::uint64_t version() const noexcept { return object_.version; }
    [[nodiscard]] Kind kind() const noexcept { return static_cast<Kind>(object_.kind); }
    [[nodiscard]] std::int64_t int64() const noexcept { return th_int64_of(object_.value); }
    [[nodiscard]] double real() const noexcept { return th_double_of(object_.value); }

private:
    friend class Scan;
    th_object object_ = th_object_init();
};

/// The settings of a client or a queue.
struct Options {
    /// The time limit of each operation. 0: the limit in the URL, or 10 seconds.
    std::chrono::microseconds deadline{0};
    /// The client calls it now and then while an operation waits. Once it returns true, the
    /// operation ends with TH_CANCELLED, or TH_OUTCOME_UNKNOWN if it may have been done. An
    /// exception counts as true. A queue ignores it.
    std::function<bool()> interrupt{};
    /// The time between two calls of `interrupt`. 0: 50 milliseconds.
    std::chrono::microseconds interrupt_every{0};
};

/// A tablet: a part of a table.
struct Tablet {
    std::uint64_t first;
    std::uint64_t last;
    std::uint64_t master;
    /// Empty while the tablet is being recovered.
    std::string address;
};

/// A table, with the location of each tablet.
struct TableInfo {
    std::uint64_t id;
    std::string name;
    std::vector<Tablet> tablets;
    TableOptions options{};
};

/// The hash that places a key: it decides the tablet of its table.
[[nodiscard]] inline Result<std::uint64_t> key_hash(View key) {
    std::uint64_t hash = 0;
    auto error = detail::failure([&](th_error* e) { return th_key_hash(key.slice(), &hash, e); });
    if (error) return detail::failed(std::move(*error));
    return hash;
}

namespace detail {

/// A handle of C, with the callback that it calls.
struct ClientHandle {
    th_client* client = nullptr;
    std::function<bool()> interrupt;

    ClientHandle() = default;
    ClientHandle(const ClientHandle&) = delete;
    ClientHandle& operator=(const ClientHandle&) = delete;
    ~ClientHandle() { th_client_free(client); }

    static bool is_wanted(void* context) {
        auto& handle = *static_cast<ClientHandle*>(context);
#if defined(__cpp_exceptions)
        try {
            return handle.interrupt();
        } catch (...) {
            return true;
        }
#else
        return handle.interrupt();
#endif
    }
};

using SharedClient = std::shared_ptr<ClientHandle>;

inline th_options options_of(const Options& from) {
    th_options options = th_options_init();
    if (from.deadline.count() != 0) options.deadline_us = microseconds(from.deadline);
    if (from.interrupt_every.count() != 0) {
        options.interrupt_every_us = microseconds(from.interrupt_every);
    }
    return options;
}

/// A name as C wants it. A zero inside would cut it, and no table has such a name.
inline std::optional<Error> bad_name(std::string_view name) {
    if (name.find('\0') == std::string_view::npos) return std::nullopt;
    return Error(TH_BAD_NAME, Outcome::not_done, 0, "a table's name has no control characters");
}

struct BatchDeleter {
    void operator()(th_batch* batch) const noexcept { th_batch_free(batch); }
};
using Batch = std::unique_ptr<th_batch, BatchDeleter>;

inline Error error_of(const th_result& result) {
    return Error(result.status, static_cast<Outcome>(result.outcome), result.version, result.text);
}

} // namespace detail

/// An operation for Client::execute or a Queue. It refers to the bytes of its key and value.
class Operation {
public:
    static Operation get(std::uint64_t table, View key) { return {TH_OP_GET, table, key}; }
    static Operation put(std::uint64_t table, View key, View value) {
        Operation op(TH_OP_PUT, table, key);
        op.op_.value = value.slice();
        return op;
    }
    static Operation put_if(std::uint64_t table, View key, View value, Condition condition) {
        Operation op = put(table, key, value);
        op.op_.condition = condition.get();
        return op;
    }
    static Operation erase(std::uint64_t table, View key) { return {TH_OP_DELETE, table, key}; }
    static Operation erase_if(std::uint64_t table, View key, Condition condition) {
        Operation op = erase(table, key);
        op.op_.condition = condition.get();
        return op;
    }
    static Operation increment(std::uint64_t table, View key, std::integral auto by) {
        Operation op(TH_OP_INCREMENT, table, key);
        op.op_.integer = static_cast<std::int64_t>(by);
        return op;
    }
    static Operation increment(std::uint64_t table, View key, std::floating_point auto by) {
        Operation op(TH_OP_INCREMENT_DOUBLE, table, key);
        op.op_.real = static_cast<double>(by);
        return op;
    }
    static Operation put_number(std::uint64_t table, View key, std::integral auto number) {
        Operation op(TH_OP_PUT_INT64, table, key);
        op.op_.integer = static_cast<std::int64_t>(number);
        return op;
    }
    static Operation put_number(std::uint64_t table, View key, std::floating_point auto number) {
        Operation op(TH_OP_PUT_DOUBLE, table, key);
        op.op_.real = static_cast<double>(number);
        return op;
    }
    static Operation put_number_if(std::uint64_t table, View key, detail::Number auto number,
                                   Condition condition) {
        Operation op = put_number(table, key, number);
        op.op_.condition = condition.get();
        return op;
    }
    /// Only for queues.
    static Operation create_table(View name, std::uint32_t span = 1) {
        Operation op(TH_OP_TABLE_CREATE, 0, name);
        op.op_.integer = span;
        return op;
    }
    /// Only for queues. The operation refers to the options, of `TableOptions::c_options`.
    static Operation create_table(View name, const th_table_options& options,
                                  std::uint32_t span = 1) {
        Operation op = create_table(name, span);
        op.op_.table_options = &options;
        return op;
    }
    /// Changes when an object expires: it lives for `ttl` from now on, or `forever`.
    static Operation expire(std::uint64_t table, View key, std::chrono::milliseconds ttl) {
        return Operation(TH_OP_SET_EXPIRY, table, key).ttl(ttl);
    }
    static Operation expire_if(std::uint64_t table, View key, std::chrono::milliseconds ttl,
                               Condition condition) {
        Operation op = expire(table, key, ttl);
        op.op_.condition = condition.get();
        return op;
    }
    /// Reads how long an object still lives: `Effect::ttl`.
    static Operation get_ttl(std::uint64_t table, View key) { return {TH_OP_GET_TTL, table, key}; }
    /// Only for queues.
    static Operation drop_table(View name) { return {TH_OP_TABLE_DROP, 0, name}; }
    /// Only for queues.
    static Operation open_table(View name) { return {TH_OP_TABLE_OPEN, 0, name}; }

    /// Limits the time of the operation; only for queues.
    Operation& deadline(std::chrono::microseconds time) {
        op_.deadline_us = detail::microseconds(time);
        return *this;
    }

    /// Only for writes: sets how long the object lives, `forever` or at least one millisecond. The
    /// time begins when the server does the write.
    Operation& ttl(std::chrono::milliseconds time) {
        op_.ttl_ms = detail::milliseconds(time);
        return *this;
    }

    [[nodiscard]] const th_op& get() const noexcept { return op_; }

private:
    friend class Queue;
    Operation(std::uint32_t kind, std::uint64_t table, View key)
        : op_(th_op_init(kind, table, key.slice())) {}

    th_op op_;
};

/// The effect of an operation that succeeded. Its bytes belong to the batch of results.
class Effect {
public:
    explicit Effect(const th_result& result) noexcept : result_(&result) {}

    /// Whether the object that was read or deleted existed.
    [[nodiscard]] bool exists() const noexcept { return result_->exists; }
    [[nodiscard]] std::uint64_t version() const noexcept { return result_->version; }
    [[nodiscard]] std::string_view value() const noexcept { return detail::text(result_->value); }
    /// The sum of whole numbers.
    [[nodiscard]] std::int64_t integer() const noexcept { return result_->integer; }
    /// The sum of floating-point numbers.
    [[nodiscard]] double real() const noexcept { return result_->real; }
    /// How long the object still lives; only for `Operation::get_ttl`.
    [[nodiscard]] std::chrono::milliseconds ttl() const noexcept {
        return detail::time_of(result_->ttl_ms);
    }
    /// The id of the table that was created or opened.
    [[nodiscard]] std::uint64_t table() const noexcept { return result_->table; }

private:
    const th_result* result_;
};

/// The results of Client::execute, in the order of the operations.
class Results {
public:
    explicit Results(detail::Batch batch) : batch_(std::move(batch)) {}

    [[nodiscard]] std::size_t size() const noexcept { return batch_ ? batch_->count : 0; }
    /// How many of them are errors.
    [[nodiscard]] std::size_t failed() const noexcept { return batch_ ? batch_->failed : 0; }
    [[nodiscard]] Result<Effect> operator[](std::size_t index) const {
        const th_result& result = *batch_->results[index];
        if (result.status != TH_OK) return detail::failed(detail::error_of(result));
        return Effect(result);
    }

private:
    detail::Batch batch_;
};

/// A scan of a table: a range of objects that can be gone through once.
///
/// A failure does not look like the end: the iterators throw bad_expected_access<Error> (without
/// exceptions, they end the program). `next()` returns failures instead.
class Scan {
public:
    Scan(Scan&&) noexcept = default;
    Scan& operator=(Scan&&) noexcept = default;

    /// Goes to the next object; nullptr at the end.
    [[nodiscard]] Result<const Object*> next() {
        if (begin_error_) return detail::failed(*begin_error_);
        if (!scan_) return detail::failed(Error());
        detail::Report report;
        const th_status status = th_scan_next(scan_.get(), &object_.object_, report);
        if (status == TH_END) return static_cast<const Object*>(nullptr);
        if (status != TH_OK) return detail::failed(report.take(status));
        return static_cast<const Object*>(&object_);
    }

    class iterator {
    public:
        using iterator_concept = std::input_iterator_tag;
        using value_type = Object;
        using difference_type = std::ptrdiff_t;

        explicit iterator(Scan* scan = nullptr) : scan_(scan) {}
        const Object& operator*() const noexcept { return scan_->object_; }
        const Object* operator->() const noexcept { return &scan_->object_; }
        iterator& operator++() {
            scan_->go_on();
            return *this;
        }
        void operator++(int) { scan_->go_on(); }
        friend bool operator==(const iterator& it, std::default_sentinel_t) noexcept {
            return it.is_over();
        }

    private:
        [[nodiscard]] bool is_over() const noexcept { return scan_->is_over_; }

        Scan* scan_;
    };

    [[nodiscard]] iterator begin() {
        go_on();
        return iterator(this);
    }
    [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

private:
    friend class Table;

    struct Deleter {
        void operator()(th_scan* scan) const noexcept { th_scan_free(scan); }
    };

    Scan(const detail::SharedClient& client, std::uint64_t table, const th_call* call) {
        th_scan* scan = nullptr;
        begin_error_ = detail::failure([&](th_error* e) {
            return th_scan_open(client ? client->client : nullptr, table, call, &scan, e);
        });
        if (!client) begin_error_ = Error();
        scan_.reset(scan);
    }

    void go_on() {
        auto object = next();
        is_over_ = true;
        if (!object) detail::raise(std::move(object).error());
        is_over_ = *object == nullptr;
    }

    std::unique_ptr<th_scan, Deleter> scan_;
    std::optional<Error> begin_error_;
    Object object_;
    bool is_over_ = false;
};

/// A table of a client. Copies are handles to the same table.
///
/// It may outlive its client: then each call returns TH_CLOSED.
class Table {
public:
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

    /// Returns a handle to the same table whose calls have this time limit.
    [[nodiscard]] Table with_deadline(std::chrono::microseconds deadline) const {
        Table table = *this;
        table.call_ = th_deadline(detail::microseconds(deadline));
        return table;
    }

    /// Reads an object. A missing object is no error: the result has no value then.
    [[nodiscard]] Result<std::optional<Value>> get(View key) const {
        auto borrowed = borrow(key);
        if (!borrowed) return detail::failed(std::move(borrowed).error());
        if (!*borrowed) return std::optional<Value>();
        return std::optional<Value>(
            std::in_place, (*borrowed)->version(), std::string((*borrowed)->bytes()));
    }

    /// Reads an object without a copy. The bytes are valid until the next call on the client.
    [[nodiscard]] Result<std::optional<BorrowedValue>> borrow(View key) const {
        th_value value = th_value_init();
        auto error = detail::failure([&](th_error* e) {
            return th_get(client(), id_, key.slice(), call(), &value, e);
        });
        if (error) [[unlikely]] return failed(std::move(*error));
        if (!value.exists) return std::optional<BorrowedValue>();
        return std::optional<BorrowedValue>(
            std::in_place, value.version, detail::text(value.value));
    }

    /// Writes an object. Returns its new version.
    Result<std::uint64_t> put(View key, View value) const {
        return versioned([&](std::uint64_t* version, th_error* e) {
            return th_put(client(), id_, key.slice(), value.slice(), call(), version, e);
        });
    }

    /// Writes an object if a condition holds. Returns its new version.
    Result<std::uint64_t> put_if(View key, View value, Condition condition) const {
        return versioned([&](std::uint64_t* version, th_error* e) {
            return th_put_if(client(), id_, key.slice(), value.slice(), condition.get(), call(),
                             version, e);
        });
    }

    /// Writes an object that lives for `ttl`, `forever` or at least one millisecond. The time begins
    /// when the server does the write. Returns its new version.
    Result<std::uint64_t> put(View key, View value, std::chrono::milliseconds ttl) const {
        return versioned([&](std::uint64_t* version, th_error* e) {
            const th_call call = call_with(ttl);
            return th_put(client(), id_, key.slice(), value.slice(), &call, version, e);
        });
    }

    /// Writes an object that lives for `ttl` if a condition holds. Returns its new version.
    Result<std::uint64_t> put_if(View key, View value, Condition condition,
                                 std::chrono::milliseconds ttl) const {
        return versioned([&](std::uint64_t* version, th_error* e) {
            const th_call call = call_with(ttl);
            return th_put_if(client(), id_, key.slice(), value.slice(), condition.get(), &call,
                             version, e);
        });
    }

    /// Changes when an object expires: it lives for `ttl` from now on, or `forever`. Returns its new
    /// version, or 0 if it does not exist.
    Result<std::uint64_t> expire(View key, std::chrono::milliseconds ttl) const {
        return expire_if(key, ttl, Condition(th_always()));
    }

    /// Changes when an object expires if a condition holds. Returns its new version, or 0.
    Result<std::uint64_t> expire_if(View key, std::chrono::milliseconds ttl,
                                    Condition condition) const {
        return versioned([&](std::uint64_t* version, th_error* e) {
            return th_set_expiry(client(), id_, key.slice(), detail::milliseconds(ttl),
                                 condition.get(), call(), version, e);
        });
    }

    /// Reads how long an object still lives: `forever` if it does not expire. The result has no
    /// value if there is no such object.
    [[nodiscard]] Result<std::optional<std::chrono::milliseconds>> ttl(View key) const {
        std::uint64_t left = 0;
        auto error = detail::failure([&](th_error* e) {
            return th_get_ttl(client(), id_, key.slice(), call(), &left, nullptr, e);
        });
        if (error) return failed(std::move(*error));
        if (left == 0) return std::optional<std::chrono::milliseconds>();
        return std::optional<std::chrono::milliseconds>(detail::time_of(left));
    }

    /// Deletes an object. Returns the version that it had, or 0 if it did not exist.
    Result<std::uint64_t> erase(View key) const {
        return versioned([&](std::uint64_t* version, th_error* e) {
            return th_delete(client(), id_, key.slice(), call(), version, e);
        });
    }

    /// Deletes an object if a condition holds. Returns the version that it had, or 0.
    Result<std::uint64_t> erase_if(View key, Condition condition) const {
        return versioned([&](std::uint64_t* version, th_error* e) {
            return th_delete_if(client(), id_, key.slice(), condition.get(), call(), version, e);
        });
    }

    /// Writes a whole number, to which `increment` can add. Returns its new version.
    Result<std::uint64_t> put_number(View key, std::integral auto number) const {
        return versioned([&](std::uint64_t* version, th_error* e) {
            return th_put_int64(client(), id_, key.slice(), static_cast<std::int64_t>(number),
                                call(), version, e);
        });
    }

    /// Writes a floating-point number, to which `increment` can add. Returns its new version.
    Result<std::uint64_t> put_number(View key, std::floating_point auto number) const {
        return versioned([&](std::uint64_t* version, th_error* e) {
            return th_put_double(client(), id_, key.slice(), static_cast<double>(number), call(),
                                 version, e);
        });
    }

    /// Writes a whole or floating-point number that lives for `ttl`. Returns its new version.
    Result<std::uint64_t> put_number(View key, detail::Number auto number,
                                     std::chrono::milliseconds ttl) const {
        return written(Operation::put_number(id_, key, number).ttl(ttl));
    }

    /// Writes a whole or floating-point number if a condition holds. Returns its new version.
    Result<std::uint64_t> put_number_if(View key, detail::Number auto number,
                                        Condition condition) const {
        return written(Operation::put_number_if(id_, key, number, condition));
    }

    /// Writes a whole or floating-point number that lives for `ttl` if a condition holds.
    Result<std::uint64_t> put_number_if(View key, detail::Number auto number, Condition condition,
                                        std::chrono::milliseconds ttl) const {
        return written(Operation::put_number_if(id_, key, number, condition).ttl(ttl));
    }

    /// Adds to a whole number. An object that does not exist counts as 0.
    Result<Sum<std::int64_t>> increment(View key) const { return increment(key, 1); }

    /// Adds to a whole number. An object that does not exist counts as 0.
    Result<Sum<std::int64_t>> increment(View key, std::integral auto by) const {
        Sum<std::int64_t> sum{};
        auto error = detail::failure([&](th_error* e) {
            return th_increment(client(), id_, key.slice(), static_cast<std::int64_t>(by), call(),
                                &sum.value, &sum.version, e);
        });
        if (error) return failed(std::move(*error));
        return sum;
    }

    /// Adds to a floating-point number. An object that does not exist counts as 0.
    Result<Sum<double>> increment(View key, std::floating_point auto by) const {
        Sum<double> sum{};
        auto error = detail::failure([&](th_error* e) {
            return th_increment_double(client(), id_, key.slice(), static_cast<double>(by), call(),
                                       &sum.value, &sum.version, e);
        });
        if (error) return failed(std::move(*error));
        return sum;
    }

    /// Reads many objects at once. Returns the results in the order of the keys.
    [[nodiscard]] Result<std::vector<Result<std::optional<Value>>>>
    get_many(std::span<const View> keys) const {
        return many<std::optional<Value>>(
            [&](th_batch** batch, th_error* e) {
                const auto slices = slices_of(keys);
                return th_get_many(client(), id_, slices.data(), slices.size(), call(), batch, e);
            },
            [](const th_result& it) {
                return it.exists ? std::optional<Value>(std::in_place, it.version,
                                                        std::string(detail::text(it.value)))
                                 : std::nullopt;
            });
    }

    /// Writes many objects at once, each by itself. Returns their new versions in the order of the
    /// pairs.
    [[nodiscard]] Result<std::vector<Result<std::uint64_t>>>
    put_many(std::span<const std::pair<View, View>> pairs) const {
        std::vector<th_pair> slices;
        slices.reserve(pairs.size());
        for (const auto& [key, value] : pairs) slices.push_back({key.slice(), value.slice()});
        return many<std::uint64_t>(
            [&](th_batch** batch, th_error* e) {
                return th_put_many(client(), id_, slices.data(), slices.size(), call(), batch, e);
            },
            [](const th_result& it) { return it.version; });
    }

    /// Writes many objects at once, each of which lives for `ttl`.
    [[nodiscard]] Result<std::vector<Result<std::uint64_t>>>
    put_many(std::span<const std::pair<View, View>> pairs, std::chrono::milliseconds ttl) const {
        std::vector<th_op> ops;
        ops.reserve(pairs.size());
        for (const auto& [key, value] : pairs) {
            ops.push_back(Operation::put(id_, key, value).ttl(ttl).get());
        }
        return many<std::uint64_t>(
            [&](th_batch** batch, th_error* e) {
                return th_execute(client(), ops.data(), ops.size(), call(), batch, e);
            },
            [](const th_result& it) { return it.version; });
    }

    /// Deletes many objects at once, each by itself. Returns the versions that they had.
    [[nodiscard]] Result<std::vector<Result<std::uint64_t>>>
    erase_many(std::span<const View> keys) const {
        return many<std::uint64_t>(
            [&](th_batch** batch, th_error* e) {
                const auto slices = slices_of(keys);
                return th_delete_many(client(), id_, slices.data(), slices.size(), call(), batch,
                                      e);
            },
            [](const th_result& it) { return it.version; });
    }

    /// Goes through all objects, in no particular order. An object that exists during the whole
    /// scan is returned exactly once. Other calls on the client are allowed meanwhile.
    [[nodiscard]] Scan scan() const { return Scan(client_, id_, call()); }

private:
    friend class Client;

    Table(detail::SharedClient client, std::uint64_t id) : client_(std::move(client)), id_(id) {}

    [[nodiscard]] th_client* client() const noexcept { return client_ ? client_->client : nullptr; }
    [[nodiscard]] const th_call* call() const noexcept { return call_ ? &*call_ : nullptr; }

    /// A handle that was moved from is closed.
    [[nodiscard]] detail::Failed failed(Error error) const {
        return detail::failed(client_ ? std::move(error) : Error());
    }

    template <class Call> Result<std::uint64_t> versioned(Call&& call) const {
        std::uint64_t version = 0;
        auto error = detail::failure([&](th_error* e) { return call(&version, e); });
        if (error) [[unlikely]] return failed(std::move(*error));
        return version;
    }

    /// Does a write for which C has a function only for many operations.
    [[nodiscard]] Result<std::uint64_t> written(const Operation& put) const {
        th_batch* raw = nullptr;
        auto error = detail::failure(
            [&](th_error* e) { return th_execute(client(), &put.get(), 1, call(), &raw, e); });
        const detail::Batch batch(raw);
        if (error) return failed(std::move(*error));
        const th_result& result = *batch->results[0];
        if (result.status != TH_OK) return detail::failed(detail::error_of(result));
        return result.version;
    }

    /// The settings of a write whose object lives for some time.
    [[nodiscard]] th_call call_with(std::chrono::milliseconds ttl) const noexcept {
        th_call call = call_ ? *call_ : th_deadline(0);
        call.ttl_ms = detail::milliseconds(ttl);
        return call;
    }

    static std::vector<th_slice> slices_of(std::span<const View> views) {
        std::vector<th_slice> slices;
        slices.reserve(views.size());
        for (const View& view : views) slices.push_back(view.slice());
        return slices;
    }

    template <class T, class Call, class Take>
    Result<std::vector<Result<T>>> many(Call&& call, Take&& take) const {
        th_batch* raw = nullptr;
        auto error = detail::failure([&](th_error* e) { return call(&raw, e); });
        const detail::Batch batch(raw);
        if (error) return failed(std::move(*error));
        std::vector<Result<T>> results;
        results.reserve(batch->count);
        for (std::size_t at = 0; at < batch->count; at++) {
            const th_result& result = *batch->results[at];
            if (result.status == TH_OK) {
                results.emplace_back(take(result));
            } else {
                results.emplace_back(detail::failed(detail::error_of(result)));
            }
        }
        return results;
    }

    detail::SharedClient client_;
    std::uint64_t id_;
    std::optional<th_call> call_;
};

/// A client of a cluster, for one thread at a time. The calling thread does the I/O.
class Client {
public:
    /// Connects to the cluster that a URL names, such as "thunderhead://host1:7070,host2/".
    [[nodiscard]] static Result<Client> connect(const std::string& url, Options from = {}) {
        th_options options = detail::options_of(from);
        auto handle = std::make_shared<detail::ClientHandle>();
        if (from.interrupt) {
            handle->interrupt = std::move(from.interrupt);
            options.interrupt = detail::ClientHandle::is_wanted;
            options.interrupt_context = handle.get();
        }
        auto error = detail::failure([&](th_error* e) {
            return th_client_open(url.c_str(), &options, &handle->client, e);
        });
        if (error) return detail::failed(std::move(*error));
        return Client(std::move(handle));
    }

    Client(Client&&) noexcept = default;
    Client& operator=(Client&& other) noexcept {
        if (this != &other) {
            close();
            handle_ = std::move(other.handle_);
        }
        return *this;
    }
    ~Client() { close(); }

    /// Closes the client and ends its lease. Its tables return TH_CLOSED from now on.
    void close() noexcept {
        if (handle_) th_client_close(handle_->client, nullptr);
        handle_.reset();
    }

    /// Sets the time limit of all further calls.
    Result<void> set_deadline(std::chrono::microseconds deadline) {
        return plain([&](th_client* client, th_error* e) {
            return th_client_set_deadline(client, detail::microseconds(deadline), e);
        });
    }

    /// Finds a table by its name.
    [[nodiscard]] Result<Table> table(std::string_view name) const {
        return opened(name, [](th_client* client, const char* text, std::uint64_t* id,
                               th_error* e) { return th_table_open(client, text, nullptr, id, e); });
    }

    /// Returns the table with an id that `Table::id` returned earlier. Sends nothing.
    [[nodiscard]] Table table(std::uint64_t id) const { return Table(handle_, id); }

    /// Creates a table, spread over `span` shards.
    [[nodiscard]] Result<Table> create_table(std::string_view name, std::uint32_t span = 1) {
        return opened(name, [&](th_client* client, const char* text, std::uint64_t* id,
                                th_error* e) {
            return th_table_create(client, text, span, nullptr, id, e);
        });
    }

    /// Creates a table with options, spread over `span` shards.
    [[nodiscard]] Result<Table> create_table(std::string_view name, const TableOptions& options,
                                             std::uint32_t span = 1) {
        return opened(name, [&](th_client* client, const char* text, std::uint64_t* id,
                                th_error* e) {
            const th_table_options given = options.c_options();
            return th_table_create_with(client, text, span, &given, nullptr, id, e);
        });
    }

    /// Finds a table, and creates it if there is none.
    [[nodiscard]] Result<Table> ensure_table(std::string_view name, std::uint32_t span = 1) {
        return ensure_table(name, TableOptions{}, span);
    }

    /// Finds a table, and creates it with options if there is none. A table that exists keeps its
    /// own options.
    [[nodiscard]] Result<Table> ensure_table(std::string_view name, const TableOptions& options,
                                             std::uint32_t span = 1) {
        auto found = table(name);
        if (found || found.error().code() != TH_NO_SUCH_TABLE) return found;
        auto created = create_table(name, options, span);
        // Another client was faster.
        if (!created && created.error().code() == TH_TABLE_EXISTS) return table(name);
        return created;
    }

    /// Drops a table with all its objects.
    Result<void> drop_table(std::string_view name) {
        return named(name, [](th_client* client, const char* text, th_error* e) {
            return th_table_drop(client, text, nullptr, e);
        });
    }

    /// Splits the tablet that holds the hash `at` into two.
    Result<void> split(std::string_view name, std::uint64_t at) {
        return named(name, [&](th_client* client, const char* text, th_error* e) {
            return th_table_split(client, text, at, nullptr, e);
        });
    }

    /// Moves the tablet that begins with the hash `first` to another master.
    Result<void> migrate(std::string_view name, std::uint64_t first, std::uint64_t master,
                         std::chrono::microseconds deadline) {
        const th_call call = th_deadline(detail::microseconds(deadline));
        return named(name, [&](th_client* client, const char* text, th_error* e) {
            return th_table_migrate(client, text, first, master, &call, e);
        });
    }

    /// Returns all tables, with the location of each tablet.
    [[nodiscard]] Result<std::vector<TableInfo>> tables() const {
        return listed([](th_client* client, th_tables** tables, th_error* e) {
            return th_table_list(client, nullptr, tables, e);
        });
    }

    /// Returns a table, with the location of each tablet.
    [[nodiscard]] Result<TableInfo> describe(std::string_view name) const {
        if (auto bad = detail::bad_name(name)) return detail::failed(std::move(*bad));
        const std::string text(name);
        auto tables = listed([&](th_client* client, th_tables** found, th_error* e) {
            return th_table_describe(client, text.c_str(), nullptr, found, e);
        });
        if (!tables) return detail::failed(std::move(tables).error());
        return std::move(tables->front());
    }

    /// Does many operations at once, on any tables, in no particular order.
    [[nodiscard]] Result<Results> execute(std::span<const Operation> operations) {
        static_assert(sizeof(Operation) == sizeof(th_op), "an array of one is one of the other");
        th_batch* batch = nullptr;
        auto done = plain([&](th_client* client, th_error* e) {
            const auto* ops = reinterpret_cast<const th_op*>(operations.data());
            return th_execute(client, ops, operations.size(), nullptr, &batch, e);
        });
        if (!done) return detail::failed(std::move(done).error());
        return Results(detail::Batch(batch));
    }

    /// The handle of C, for functions that this class does not have.
    [[nodiscard]] th_client* c_handle() const noexcept { return handle_ ? handle_->client : nullptr; }

private:
    explicit Client(detail::SharedClient handle) : handle_(std::move(handle)) {}

    template <class Call> Result<void> plain(Call&& call) const {
        if (!handle_) return detail::failed(Error());
        auto error = detail::failure([&](th_error* e) { return call(handle_->client, e); });
        if (error) return detail::failed(std::move(*error));
        return {};
    }

    template <class Call> Result<void> named(std::string_view name, Call&& call) const {
        if (auto bad = detail::bad_name(name)) return detail::failed(std::move(*bad));
        const std::string text(name);
        return plain([&](th_client* client, th_error* e) { return call(client, text.c_str(), e); });
    }

    template <class Call> Result<Table> opened(std::string_view name, Call&& call) const {
        std::uint64_t id = 0;
        auto done = named(name, [&](th_client* client, const char* text, th_error* e) {
            return call(client, text, &id, e);
        });
        if (!done) return detail::failed(std::move(done).error());
        return Table(handle_, id);
    }

    template <class Call> Result<std::vector<TableInfo>> listed(Call&& call) const {
        th_tables* raw = nullptr;
        auto done = plain([&](th_client* client, th_error* e) { return call(client, &raw, e); });
        const std::unique_ptr<th_tables, decltype(&th_tables_free)> tables(raw, th_tables_free);
        if (!done) return detail::failed(std::move(done).error());
        std::vector<TableInfo> infos;
        for (std::size_t at = 0; at < tables->count; at++) {
            const th_table& table = *tables->tables[at];
            const TableOptions options{detail::time_of(table.ttl_ms),
                                       static_cast<Policy>(table.policy), table.max_bytes,
                                       table.reserved_bytes};
            TableInfo info{table.id, table.name, {}, options};
            for (std::size_t tablet = 0; tablet < table.tablet_count; tablet++) {
                const th_tablet& it = *table.tablets[tablet];
                info.tablets.push_back({it.first, it.last, it.master, it.address ? it.address : ""});
            }
            infos.push_back(std::move(info));
        }
        return infos;
    }

    detail::SharedClient handle_;
};

namespace detail {

inline Result<Effect> result_of(const th_result& result) {
    if (result.status != TH_OK) return failed(error_of(result));
    return Effect(result);
}

using QueueCallback = std::function<void(Result<Effect>)>;

/// The part of a queue that its futures share.
struct QueueState {
    /// The place of a result for a future. The lock of the queue protects it.
    struct Promise {
        std::shared_ptr<th_batch> batch;
        const th_result* result = nullptr;
        /// Wakes the thread that waits for the result.
        std::condition_variable changed;
    };

    /// The receiver of a result: a future, or else a callback.
    struct Receiver {
        std::shared_ptr<Promise> promise;
        QueueCallback callback;
    };

    /// A callback and its result.
    struct Ready {
        QueueCallback callback;
        std::shared_ptr<th_batch> batch;
        const th_result* result;
    };

    th_queue* queue = nullptr;
    std::mutex lock;
    /// Protected by `lock`, as all that follows.
    std::unordered_map<std::uint64_t, Receiver> receivers;
    std::uint64_t tag = 0;
    std::deque<Ready> ready;
    /// Whether a thread takes results. The others wait until it has theirs.
    bool is_taking = false;
    std::vector<Promise*> waiting;

    QueueState() = default;
    QueueState(const QueueState&) = delete;
    QueueState& operator=(const QueueState&) = delete;
    ~QueueState() { th_queue_free(queue); }

    Result<std::uint64_t> submit(const Operation& operation, Receiver receiver) {
        th_op op = operation.get();
        {
            // The result may come before th_submit returns, so its receiver is there first.
            const std::lock_guard guard(lock);
            op.tag = ++tag;
            receivers.emplace(op.tag, std::move(receiver));
        }
        std::uint64_t number = 0;
        auto error = detail::failure(
            [&](th_error* e) { return th_submit(queue, &op, 1, &number, e); });
        if (error) {
            const std::lock_guard guard(lock);
            receivers.erase(op.tag);
            return detail::failed(std::move(*error));
        }
        return number;
    }

    /// Hands the results over to futures, and queues those for callbacks. Only for the thread that
    /// has set `is_taking`.
    Result<std::size_t> take() {
        th_batch* raw = nullptr;
        detail::Report report;
        const th_status status =
            th_take(queue, std::numeric_limits<std::size_t>::max(), &raw, report);
        if (status != TH_OK) return detail::failed(report.take(status));
        if (raw == nullptr) return std::size_t{0};
        const std::shared_ptr<th_batch> batch(raw, detail::BatchDeleter());
        const std::lock_guard guard(lock);
        for (std::size_t at = 0; at < batch->count; at++) {
            const th_result* result = batch->results[at];
            auto found = receivers.find(result->tag);
            if (found == receivers.end()) continue;
            Receiver receiver = std::move(found->second);
            receivers.erase(found);
            if (receiver.promise) {
                receiver.promise->batch = batch;
                receiver.promise->result = result;
                receiver.promise->changed.notify_one();
            } else {
                ready.push_back({std::move(receiver.callback), batch, result});
            }
        }
        return batch->count;
    }

    /// Runs the callbacks whose results are there.
    void run_callbacks() {
        for (;;) {
            Ready next;
            {
                const std::lock_guard guard(lock);
                if (ready.empty()) return;
                next = std::move(ready.front());
                ready.pop_front();
            }
            if (next.callback) next.callback(result_of(*next.result));
        }
    }

    /// Takes results, after `before`, as the only thread that does. `guard` holds `lock`.
    template <class Before>
    Result<std::size_t> take_alone(std::unique_lock<std::mutex>& guard, Before&& before) {
        struct Turn {
            QueueState& state;
            ~Turn() {
                const std::lock_guard again(state.lock);
                state.is_taking = false;
                for (Promise* promise : state.waiting) {
                    // The thread without a result takes the next ones. `take` has woken the others.
                    if (!promise->result) {
                        promise->changed.notify_one();
                        break;
                    }
                }
            }
        };
        is_taking = true;
        guard.unlock();
        const Turn turn{*this};
        before();
        return take();
    }

    Result<std::size_t> drain() {
        Result<std::size_t> taken = std::size_t{0};
        {
            std::unique_lock guard(lock);
            if (!is_taking) taken = take_alone(guard, [] {});
        }
        run_callbacks();
        return taken;
    }

    /// Waits for a future's result. One thread takes results for all threads that wait. A thread
    /// returns once its result is there, also while another one waits for further results.
    std::optional<Error> wait_for(Promise& promise) {
        for (;;) {
            std::unique_lock guard(lock);
            if (!promise.result && is_taking) {
                waiting.push_back(&promise);
                promise.changed.wait(guard, [&] { return promise.result || !is_taking; });
                waiting.erase(std::find(waiting.begin(), waiting.end(), &promise));
            }
            if (promise.result) return std::nullopt;
            if (is_taking) continue;
            // Every operation has a deadline, so a result comes.
            auto taken = take_alone(guard, [&] { (void)wait(std::chrono::milliseconds(-1)); });
            guard.lock();
            if (!taken && !promise.result) return std::move(taken).error();
            guard.unlock();
            run_callbacks();
        }
    }

    [[nodiscard]] int fd() const noexcept {
        int fd = -1;
        th_queue_fd(queue, &fd, nullptr);
        return fd;
    }

    [[nodiscard]] bool wait(std::chrono::milliseconds time) const {
        const auto most = std::chrono::milliseconds(std::numeric_limits<int>::max());
        pollfd polled{fd(), POLLIN, 0};
        if (polled.fd < 0) return false;
        const auto until = std::chrono::steady_clock::now() + std::min(time, most);
        for (;;) {
            const int found = ::poll(&polled, 1, static_cast<int>(std::min(time, most).count()));
            if (found >= 0 || errno != EINTR) return found > 0;
            if (time.count() < 0) continue;
            const auto left = until - std::chrono::steady_clock::now();
            time = std::chrono::ceil<std::chrono::milliseconds>(left);
            if (time.count() <= 0) time = std::chrono::milliseconds(0);
        }
    }
};

} // namespace detail

/// A client of a cluster, for any number of threads. A thread of the library does the I/O.
///
/// Callbacks run only in `drain()`, on the thread that calls it. So an event loop waits for
/// `fd()`, and calls `drain()` when it is readable. Or use futures: `get()` of a future waits and
/// drains by itself.
class Queue {
public:
    /// Takes the result of one operation. The bytes in it are valid during the call.
    using Callback = detail::QueueCallback;

    /// The result of an operation that is still to come. For one thread.
    class Future {
    public:
        /// Waits for the operation, and returns its result. Its bytes are valid as long as the
        /// future exists. Runs callbacks of other operations that end meanwhile.
        [[nodiscard]] Result<Effect> get() {
            if (!promise_) return detail::failed(Error());
            if (auto error = shared_->wait_for(*promise_)) return detail::failed(*error);
            return detail::result_of(*promise_->result);
        }

        /// Ends the operation before its deadline. `get()` says whether it was done.
        void cancel() {
            if (promise_) th_cancel(shared_->queue, number_, nullptr);
        }

    private:
        friend class Queue;
        std::shared_ptr<detail::QueueState> shared_;
        std::shared_ptr<detail::QueueState::Promise> promise_;
        std::uint64_t number_ = 0;
    };

    /// Connects to the cluster that a URL names, and starts a thread.
    [[nodiscard]] static Result<Queue> connect(const std::string& url, const Options& from = {}) {
        const th_options options = detail::options_of(from);
        auto shared = std::make_shared<detail::QueueState>();
        auto error = detail::failure([&](th_error* e) {
            return th_queue_open(url.c_str(), &options, &shared->queue, e);
        });
        if (error) return detail::failed(std::move(*error));
        return Queue(std::move(shared));
    }

    Queue(Queue&&) noexcept = default;
    Queue& operator=(Queue&&) noexcept = default;

    /// Begins an operation. `callback` takes its result in `drain()`. Returns the number of the
    /// operation, for `cancel()`. After an error, the callback is never called.
    Result<std::uint64_t> submit(const Operation& operation, Callback callback) {
        if (!shared_) return detail::failed(Error());
        return shared_->submit(operation, {nullptr, std::move(callback)});
    }

    /// Begins an operation whose result a future takes.
    [[nodiscard]] Result<Future> submit(const Operation& operation) {
        if (!shared_) return detail::failed(Error());
        Future future;
        future.shared_ = shared_;
        future.promise_ = std::make_shared<detail::QueueState::Promise>();
        auto number = shared_->submit(operation, {future.promise_, nullptr});
        if (!number) return detail::failed(std::move(number).error());
        future.number_ = *number;
        return future;
    }

    /// Ends an operation before its deadline. Its result still comes.
    void cancel(std::uint64_t number) {
        if (shared_) th_cancel(shared_->queue, number, nullptr);
    }

    /// Runs the callbacks of the operations that have ended. Does not wait. Returns how many
    /// results it handled; 0 also if another thread is handling them. If a callback throws, the
    /// next call runs the remaining ones.
    Result<std::size_t> drain() {
        if (!shared_) return detail::failed(Error());
        return shared_->drain();
    }

    /// Waits until there are results to drain, for at most this time. Returns whether there are. Now
    /// and then it returns true although an earlier call has just drained them.
    [[nodiscard]] bool wait(std::chrono::milliseconds time) const {
        return shared_ && shared_->wait(time);
    }

    /// The descriptor that is readable while there are results to drain; -1 if the queue is closed.
    [[nodiscard]] int fd() const noexcept { return shared_ ? shared_->fd() : -1; }

    /// Closes the queue: waits until all operations have ended. Their results can still be drained.
    Result<void> close() {
        if (!shared_) return detail::failed(Error());
        auto error = detail::failure([&](th_error* e) { return th_queue_close(shared_->queue, e); });
        if (error) return detail::failed(std::move(*error));
        return {};
    }

    /// The handle of C, for functions that this class does not have.
    [[nodiscard]] th_queue* c_handle() const noexcept { return shared_ ? shared_->queue : nullptr; }

private:
    explicit Queue(std::shared_ptr<detail::QueueState> shared) : shared_(std::move(shared)) {}

    std::shared_ptr<detail::QueueState> shared_;
};

} // namespace THUNDERHEAD_ABI
} // namespace thunderhead

#undef THUNDERHEAD_ABI

#endif
