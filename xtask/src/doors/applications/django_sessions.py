"""Django: sessions in the cache of django-redis, and values that expire."""

import common
import django
from django.conf import settings

port, count, directory = common.arguments()
settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{port}/1",
        }
    },
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    SECRET_KEY="a test",
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import cache  # noqa: E402


def begin(number):
    session = SessionStore()
    session["number"] = number
    session["cart"] = [f"article {number}", f"article {number + 1}"]
    session.create()
    return session.session_key


def change(key, number):
    session = SessionStore(session_key=key)
    session["seen"] = session["number"] + 1
    session.save()
    assert session["number"] == number


keys = []
for number in range(count):
    keys.append(common.insist(lambda: begin(number)))
    common.insist(lambda: change(keys[-1], number))
    if number % 50 == 49:
        common.say(f"begun {number + 1}")
for number, key in enumerate(keys):
    session = SessionStore(session_key=key)
    seen = common.insist(lambda: (session["number"], session["cart"][0], session["seen"]))
    assert seen == (number, f"article {number}", number + 1), (number, seen)
common.insist(lambda: cache.set_many({f"value {at}": at for at in range(100)}, timeout=300))
common.insist(lambda: cache.incr("value 1", 41))
found = common.insist(lambda: cache.get_many([f"value {at}" for at in range(100)]))
assert found == {f"value {at}": 42 if at == 1 else at for at in range(100)}, found
assert common.insist(lambda: cache.ttl("value 7")) > 200
assert common.insist(lambda: cache.delete_pattern("value *")) == 100
common.say(f"all {count} sessions are there")
