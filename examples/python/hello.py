"""Writes an object, reads it, and changes it only if it is unchanged.

Start a server first: `thunderhead dev`. Then: `python hello.py thunderhead://localhost`
"""

import sys

import thunderhead


def main(url: str) -> None:
    with thunderhead.connect(url) as db:
        users = db.table("users", create=True)

        version = users.put("ada", "analyst")
        ada = users.get("ada")
        assert ada is not None
        print(ada.text(), "at version", ada.version)

        # A missing key is a value, not an error.
        print(users.get("charles"))

        try:
            users.put("ada", "countess", if_version=version)
            users.put("ada", "duchess", if_version=version)
        except thunderhead.ConditionFailed as error:
            print("changed meanwhile, now at version", error.version)
        except thunderhead.OutcomeUnknown:
            # The update was sent, and no answer came. Read before you repeat it.
            print("perhaps:", users.get("ada"))

        # Many objects at once take hardly longer than one.
        users.put_many({"grace": "admiral", "alan": "logician"})
        for key, value, version in sorted(users.scan()):
            print(key.decode(), value.decode(), version)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "thunderhead://localhost")
