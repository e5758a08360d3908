import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson: a counter behind a lock, and a map of sessions. */
final class RedissonLocks {
    private RedissonLocks() {}

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + arguments[0])
                .setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(4)
                .setSubscriptionConnectionMinimumIdleSize(1)
                .setTimeout(1000);
        RedissonClient client = Redisson.create(config);
        RBucket<String> counter = client.getBucket("counter");
        RMap<String, String> sessions = client.getMap("sessions");
        RLock lock = client.getLock("the lock");
        for (int turn = 0; turn < count; turn++) {
            int number = turn;
            Common.insist(() -> turn(lock, counter, number));
            Common.insist(() -> sessions.fastPut("session " + number, "of user " + number));
            if (number % 50 == 49) {
                Common.say("begun " + (number + 1));
            }
        }
        String counted = Common.insist(counter::get);
        Common.require(counted.equals(String.valueOf(count)), "the counter is " + counted);
        for (int number = 0; number < count; number++) {
            String key = "session " + number;
            String found = Common.insist(() -> sessions.get(key));
            Common.require(("of user " + number).equals(found), key + " is " + found);
        }
        int size = Common.insist(sessions::size);
        Common.require(size == count, size + " sessions instead of " + count);
        Common.say("all " + count + " turns were counted once");
        System.exit(0);
    }

    /** A turn holds the lock. So reading and writing lose no turn, also when one repeats. */
    private static boolean turn(RLock lock, RBucket<String> counter, int turn) throws Exception {
        // A lock whose release was not acknowledged ends by itself.
        if (!lock.isHeldByCurrentThread() && !lock.tryLock(10, 2, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the lock is not free");
        }
        String found = counter.get();
        int value = found == null ? 0 : Integer.parseInt(found);
        Common.require(value == turn || value == turn + 1, "the counter is " + value + " in turn " + turn);
        counter.set(String.valueOf(turn + 1));
        if (lock.isHeldByCurrentThread()) {
            lock.unlock();
        }
        return true;
    }
}
