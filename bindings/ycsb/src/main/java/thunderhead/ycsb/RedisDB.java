package thunderhead.ycsb;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisException;
import site.ycsb.ByteIterator;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * Redis for YCSB, as it does best: a record is a hash, of which an update sets some fields in one
 * round trip, or with one field a string. It keeps no index of keys in their order, which only workload
 * E would use and which would make each insert dearer. Each thread has a connection of its own.
 *
 * <p>Properties: {@code redis.host} (127.0.0.1), {@code redis.port} (6379), {@code redis.layout}
 * (hash or value; hash).
 */
public final class RedisDB extends KeyValueDB {
  private Jedis redis;
  private boolean isValue;
  private int fieldCount;

  @Override
  public void init() throws DBException {
    String host = getProperties().getProperty("redis.host", "127.0.0.1");
    String port = getProperties().getProperty("redis.port", "6379");
    String layout = getProperties().getProperty("redis.layout", "hash");
    if (!layout.equals("hash") && !layout.equals("value")) {
      throw new DBException("redis.layout is " + layout + "; it must be hash or value");
    }
    isValue = layout.equals("value");
    try {
      fieldCount = Integer.parseInt(getProperties().getProperty("fieldcount", "10"));
      redis = new Jedis(host, Integer.parseInt(port));
      redis.ping();
    } catch (NumberFormatException error) {
      throw new DBException("redis.port and fieldcount must be numbers", error);
    } catch (JedisException error) {
      throw new DBException("no Redis at " + host + ":" + port, error);
    }
  }

  @Override
  public void cleanup() {
    redis.close();
  }

  @Override
  public Status read(
      String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    byte[] name = bytes(key);
    Map<String, byte[]> record = new LinkedHashMap<>();
    try {
      if (isValue) {
        byte[] value = redis.get(name);
        if (value == null) {
          return Status.NOT_FOUND;
        }
        record = Record.decode(value);
        if (record == null) {
          return Status.UNEXPECTED_STATE;
        }
      } else if (fields == null) {
        for (Map.Entry<byte[], byte[]> field : redis.hgetAll(name).entrySet()) {
          record.put(new String(field.getKey(), StandardCharsets.UTF_8), field.getValue());
        }
      } else {
        for (String field : fields) {
          byte[] value = redis.hget(name, bytes(field));
          if (value != null) {
            record.put(field, value);
          }
        }
      }
    } catch (JedisException error) {
      return Status.ERROR;
    }
    Fields.give(record, fields, result);
    return record.isEmpty() ? Status.NOT_FOUND : Status.OK;
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    Map<String, byte[]> fields = Fields.bytes(values);
    try {
      if (isValue) {
        redis.set(bytes(key), Record.encode(fields));
      } else {
        Map<byte[], byte[]> hash = new HashMap<>();
        fields.forEach((field, value) -> hash.put(bytes(field), value));
        redis.hset(bytes(key), hash);
      }
      return Status.OK;
    } catch (JedisException error) {
      return Status.ERROR;
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    // A value of which only some fields change would have to be read first, under a lock.
    boolean isPart = isValue && values.size() < fieldCount;
    return isPart ? Status.NOT_IMPLEMENTED : insert(table, key, values);
  }

  @Override
  public Status delete(String table, String key) {
    try {
      redis.del(bytes(key));
      return Status.OK;
    } catch (JedisException error) {
      return Status.ERROR;
    }
  }
}
