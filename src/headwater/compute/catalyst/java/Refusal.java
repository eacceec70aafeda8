package headwater;

import org.apache.spark.sql.catalyst.trees.Origin;

/** A query that is not taken: what stands in it, why it cannot be, what to write instead. */
public final class Refusal extends RuntimeException {
    public final String construct;
    public final String reason;
    public final String hint;
    public final int line;
    public final int column;

    public Refusal(String construct, String reason, String hint, Origin origin) {
        super(construct + ": " + reason);
        this.construct = construct;
        this.reason = reason;
        this.hint = hint;
        boolean known = origin != null && origin.line().isDefined() && origin.startPosition().isDefined();
        this.line = known ? ((Number) origin.line().get()).intValue() : 0;
        this.column = known ? ((Number) origin.startPosition().get()).intValue() + 1 : 0;
    }
}
