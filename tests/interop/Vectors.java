import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/** Runs tests/vectors/clients.json, its one argument, against the example; prints a line for each case that fails. */
public final class Vectors {
    private static int cases;

    public static void main(String[] arguments) throws Exception {
        JsonNode vectors = new ObjectMapper().readTree(new File(arguments[0]));
        for (JsonNode vector : vectors.get("decisions")) {
            DynamicConfigs.Kind kind = DynamicConfigs.Kind.valueOf(vector.get("kind").asText().toUpperCase());
            DynamicConfigs.Decision decision =
                    DynamicConfigs.decide(kind, texts(vector.get("own")), texts(vector.get("dynamic")));
            Set<String> dropped = new TreeSet<>();
            vector.get("dropped").forEach(key -> dropped.add(key.asText()));
            check(vector, decision.accepted().equals(texts(vector.get("accepted"))));
            check(vector, decision.dropped().keySet().equals(dropped));
        }
        for (JsonNode vector : vectors.get("enabled")) {
            check(vector, DynamicConfigs.enabled(texts(vector.get("own"))) == vector.get("enabled").asBoolean());
        }
        for (JsonNode vector : vectors.get("errors")) {
            JsonNode code = vector.get("kafkaErrorCode");
            boolean off = DynamicConfigs.lacking(vector.get("status").asInt(), code.isNull() ? null : code.asInt());
            check(vector, off == vector.get("off").asBoolean());
        }
        for (JsonNode vector : vectors.get("reports")) {
            JsonNode sinceS = vector.get("sinceS");
            boolean due = DynamicConfigs.due(vector.get("changed").asBoolean(), sinceS.isNull() ? null : sinceS.asDouble());
            check(vector, due == vector.get("due").asBoolean());
        }
        for (JsonNode vector : vectors.get("pauses")) {
            check(vector, Math.abs(pauseS(vector, 0) - vector.get("least").asDouble()) < 1e-6);
            check(vector, Math.abs(pauseS(vector, 1) - vector.get("most").asDouble()) < 1e-6);
        }
        System.out.println(cases + " checks");
    }

    private static double pauseS(JsonNode vector, double share) {
        JsonNode retryAfter = vector.get("retryAfterS");
        return DynamicConfigs.pauseS(
                vector.get("maxAgeMs").asDouble() / 1000,
                vector.get("failures").asInt(),
                retryAfter.isNull() ? null : retryAfter.asDouble(),
                share);
    }

    private static void check(JsonNode vector, boolean holds) {
        cases++;
        if (!holds) {
            System.out.println("fails: " + vector);
        }
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> found = new TreeMap<>();
        object.fields().forEachRemaining(field -> found.put(field.getKey(), field.getValue().asText()));
        return found;
    }
}
