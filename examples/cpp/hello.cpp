// Writes an object, reads it, and lists its table: hello [URL]
#include <iostream>
#include <thunderhead.hpp>

int main(int count, char** arguments) try {
    auto db =
        thunderhead::Client::connect(count > 1 ? arguments[1] : "thunderhead://localhost").value();
    auto users = db.ensure_table("users").value();
    auto version = users.put("ada", "analyst").value();

    // This write happens only if the object is still the same.
    auto put = users.put_if("ada", "countess", thunderhead::version_is(version));
    if (!put && put.error().condition_failed()) {
        std::cout << "another program was faster: version " << put.error().version() << '\n';
    } else if (!put && put.error().unknown()) {
        std::cout << "look before you repeat it: " << put.error().message() << '\n';
    }

    if (auto ada = users.get("ada").value()) std::cout << "ada is a " << ada->bytes() << '\n';
    for (const auto& object : users.scan()) std::cout << "- " << object.key() << '\n';
} catch (const thunderhead::bad_expected_access<thunderhead::Error>& failure) {
    std::cerr << failure.error().message() << '\n';
    return 1;
}
