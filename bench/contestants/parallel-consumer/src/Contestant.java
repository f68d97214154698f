import static java.lang.System.getenv;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import io.confluent.parallelconsumer.internal.DrainingCloseable.DrainingMode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Takes turns with the Confluent Parallel Consumer, one at a time per session and the sessions
 * concurrently, each on a thread of its pool.
 *
 * <p>Durability: plain work per key. The steps are NOT durable: they run in memory, and a turn cut off by a
 * crash runs again from its first step. Delivery is at least once: the library waits for each result's
 * acknowledgement (acks=all, by an idempotent producer, to a broker that does not fsync each write, Kafka's
 * default) and commits the offsets of finished turns every 5 s, its default.
 */
public class Contestant {
    /** Its threads, hence how many turns may be under way; the library's default is 16. */
    private static final int MAX_CONCURRENCY = 500;

    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) {
        String servers = getenv("KAFKA_BOOTSTRAP_SERVERS");
        var text = new StringDeserializer();
        var consumer = new KafkaConsumer<>(Map.<String, Object>of(
            "bootstrap.servers", servers,
            "group.id", getenv("GROUP_ID"),
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false), text, text);
        var bytes = new StringSerializer();
        var producer = new KafkaProducer<>(Map.<String, Object>of(
            "bootstrap.servers", servers,
            "acks", "all",
            "enable.idempotence", true,
            "linger.ms", 0), bytes, bytes);

        var options = ParallelConsumerOptions.<String, String>builder()
            .ordering(ProcessingOrder.KEY)
            .maxConcurrency(MAX_CONCURRENCY)
            .consumer(consumer)
            .producer(producer)
            .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        Runtime.getRuntime().addShutdownHook(
            new Thread(() -> processor.close(Duration.ofSeconds(3), DrainingMode.DONT_DRAIN)));

        processor.subscribe(List.of(getenv("TURNS_TOPIC")), new Ready());
        String results = getenv("RESULTS_TOPIC");
        processor.pollAndProduce(context -> turn(results, context.value()));
    }

    private static ProducerRecord<String, String> turn(String results, String input) {
        JsonNode turn = parse(input);
        JsonNode metadata = turn.get("metadata");
        int steps = metadata.get("steps").asInt();
        long work = TimeUnit.MILLISECONDS.toNanos(metadata.get("work_ms").asInt());
        for (int step = 0; step < steps; step++) {
            echo("a", work / steps);
        }
        var result = JSON.createObjectNode();
        result.set("turn_id", turn.get("turn_id"));
        result.set("session_id", turn.get("session_id"));
        result.put("status", "completed").put("output", "done");
        return new ProducerRecord<>(results, turn.get("session_id").asText(), result.toString());
    }

    private static String echo(String text, long nanos) {
        try {
            TimeUnit.NANOSECONDS.sleep(nanos);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(stopped);
        }
        return text;
    }

    private static JsonNode parse(String input) {
        try {
            return JSON.readTree(input);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Says so once the group has given us our partitions. */
    private static class Ready implements ConsumerRebalanceListener {
        private boolean said;

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            if (!said) {
                System.out.println("ready");
            }
            said = true;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
    }
}
