import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Writes transactions of ten messages to two topics, every second of which is aborted: URL TOPIC TOPIC COUNT. */
public final class Transactions {
    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder()
                .serviceUrl(arguments[0]).enableTransaction(true).build();
                Producer<byte[]> first = producer(client, arguments[1]);
                Producer<byte[]> second = producer(client, arguments[2])) {
            for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
                Transaction transaction = client.newTransaction()
                        .withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
                for (int part = 0; part < 10; part++) {
                    byte[] value = (number + "." + part).getBytes(StandardCharsets.US_ASCII);
                    first.newMessage(transaction).value(value).send();
                    second.newMessage(transaction).value(value).send();
                }
                if (number % 2 == 0) {
                    transaction.commit().get();
                } else {
                    transaction.abort().get();
                }
            }
        }
    }

    private static Producer<byte[]> producer(PulsarClient client, String topic) throws Exception {
        return client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS).create();
    }

    private Transactions() {
    }
}
