#!/bin/bash
# The shape of Megatron-LM's Llama 3 example: a type decides by an argument,
# two flags within one pair of quotes, mock data or real ones.
DTYPE="${DTYPE:-fp8}"
TOKENIZER_ARG=${3:-"MOCK"}
NUM_NODES=1
while [[ $# -gt 0 ]]; do
  case "$1" in
    --dtype|-d) DTYPE="$2"; shift 2 ;;
    -h|--help) echo "Usage: $0 [--dtype TYPE] --nothing"; exit 0 ;;
    *) exit 1 ;;
  esac
done
MODEL_ARGS=(
    --use-mcore-models --num-layers 32 --hidden-size 4096
    --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --kv-channels 128
    --seq-length 8192 --max-position-embeddings 8192
    --position-embedding-type rope --rotary-base 1000000
    --attention-dropout 0.0 --hidden-dropout 0.0
    --swiglu --untie-embeddings-and-output-weights --disable-bias-linear
    --normalization RMSNorm --attention-backend fused
    --apply-layernorm-1p --init-method-std 0.0134
)
TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size 128 --bf16
    --grad-reduce-in-bf16 --cross-entropy-loss-fusion
    --calculate-per-token-loss --manual-gc --exit-duration-in-mins 235)
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-amax-history-len 1024"
        "--fp8-param-gather"
    )
elif [[ "$DTYPE" == "bf16" ]]; then
    DTYPE_ARGS+=(--no-fp8)
fi
if [[ "$TOKENIZER_ARG" == "MOCK" ]] || [[ -z "$TOKENIZER_ARG" ]]; then
    DATA_ARGS=(--mock-data --tokenizer-type NullTokenizer --vocab-size 128256)
else
    DATA_ARGS=(--data-path "$4" --tokenizer-type HuggingFaceTokenizer)
fi
echo "--tensor-model-parallel-size 64 is only said"
torchrun --nproc_per_node 8 --nnodes $NUM_NODES pretrain_gpt.py \
    ${MODEL_ARGS[@]} ${TRAINING_ARGS[@]} ${DTYPE_ARGS[@]} ${DATA_ARGS[@]} \
    --tensor-model-parallel-size 2 --sequence-parallel \
    --context-parallel-size 1 --use-distributed-optimizer \
    --overlap-grad-reduce --overlap-param-gather
