package dev.thunderhead.cost;

import java.net.URI;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;

/**
 * The client of Redis: Jedis. Its calls wait, and its way to many operations in flight is a
 * pipeline, which stands beside our futures.
 */
final class RedisRounds implements Cost.Rounds {
  private final Jedis redis;
  private final boolean waits;
  private final byte[] value;
  private final byte[][] objects = new byte[2 * Cost.KEYS.length][];

  RedisRounds(String url, String mode, byte[] value) {
    this.redis = new Jedis(URI.create(url));
    this.waits = mode.equals("sync");
    this.value = value;
    for (int at = 0; at < Cost.KEYS.length; at++) {
      objects[2 * at] = Cost.KEYS[at];
      objects[2 * at + 1] = value;
    }
    redis.mset(objects);
  }

  @Override
  public void round(String work, int count, int width) throws Cost.Missing {
    if (waits == work.endsWith("_in_flight")) {
      throw new Cost.Missing("Jedis has no futures, only calls that wait and pipelines");
    }
    byte[] key = Cost.KEYS[0];
    switch (work) {
      case "get" -> {
        for (int at = 0; at < count; at++) {
          if (redis.get(key) == null) {
            throw new IllegalStateException("the object is not there");
          }
        }
      }
      case "put" -> {
        for (int at = 0; at < count; at++) {
          redis.set(key, value);
        }
      }
      case "get_many" -> {
        for (int at = 0; at < count; at += width) {
          redis.mget(Cost.KEYS);
        }
      }
      case "put_many" -> {
        for (int at = 0; at < count; at += width) {
          redis.mset(objects);
        }
      }
      case "get_in_flight", "put_in_flight" -> {
        for (int at = 0; at < count; at += width) {
          pipeline(work.startsWith("get"), width);
        }
      }
      default -> throw new IllegalArgumentException("there is no work " + work);
    }
  }

  private void pipeline(boolean reads, int width) {
    try (Pipeline pipeline = redis.pipelined()) {
      for (int at = 0; at < width; at++) {
        if (reads) {
          pipeline.get(Cost.KEYS[at]);
        } else {
          pipeline.set(Cost.KEYS[at], value);
        }
      }
      pipeline.sync();
    }
  }

  @Override
  public void close() {
    redis.close();
  }
}
