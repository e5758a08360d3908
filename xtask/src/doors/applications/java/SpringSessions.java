import java.util.ArrayList;
import java.util.List;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisTemplate;
import org.springframework.data.redis.serializer.RedisSerializer;
import org.springframework.session.Session;
import org.springframework.session.SessionRepository;
import org.springframework.session.data.redis.RedisIndexedSessionRepository;

/** Spring Session with the client Lettuce: sessions with an index, changed once each. */
final class SpringSessions {
    private SpringSessions() {}

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        LettuceConnectionFactory factory =
                new LettuceConnectionFactory("127.0.0.1", Integer.parseInt(arguments[0]));
        factory.afterPropertiesSet();
        factory.start();
        RedisTemplate<String, Object> template = new RedisTemplate<>();
        template.setConnectionFactory(factory);
        template.setKeySerializer(RedisSerializer.string());
        template.setHashKeySerializer(RedisSerializer.string());
        template.afterPropertiesSet();
        run(new RedisIndexedSessionRepository(template), count);
        Common.say("all " + count + " sessions are there");
        System.exit(0);
    }

    private static <S extends Session> void run(SessionRepository<S> sessions, int count) throws Exception {
        List<String> ids = new ArrayList<>();
        for (int turn = 0; turn < count; turn++) {
            int number = turn;
            String id = Common.insist(() -> {
                S session = sessions.createSession();
                session.setAttribute("number", number);
                sessions.save(session);
                return session.getId();
            });
            Common.insist(() -> {
                S session = sessions.findById(id);
                session.setAttribute("seen", number + 1);
                sessions.save(session);
                return true;
            });
            ids.add(id);
            if (number % 50 == 49) {
                Common.say("begun " + (number + 1));
            }
        }
        for (int number = 0; number < count; number++) {
            String id = ids.get(number);
            S session = Common.insist(() -> sessions.findById(id));
            Common.require(session != null, "session " + number + " is lost");
            Integer first = session.getAttribute("number");
            Integer seen = session.getAttribute("seen");
            Common.require(first == number && seen == number + 1, "session " + number + " is wrong");
        }
    }
}
