#!/bin/bash
# A size by name, options in strings, as scripts of 2023 have them.
MODEL_SIZE=${MODEL_SIZE:-7}
GPUS_PER_NODE=8
: ${NNODES:=2}
case $MODEL_SIZE in
  7|7b)  HIDDEN=4096; HEADS=32; LAYERS=32; FFN=11008 ;;
  13)    HIDDEN=5120; HEADS=40; LAYERS=40; FFN=13824 ;;
  *)     echo "no such size"; exit 1 ;;
esac
if [ $MODEL_SIZE -gt 10 ]; then
  TP=4
else
  TP=2
fi
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
GPT_ARGS="
    --tensor-model-parallel-size $TP
    --num-layers $LAYERS --hidden-size $HIDDEN --num-attention-heads $HEADS
    --ffn-hidden-size $FFN --seq-length 4096 --max-position-embeddings 4096
    --micro-batch-size 2 --global-batch-size 64 --use-rotary-position-embeddings
    --no-position-embedding --swiglu --normalization RMSNorm --bf16
    --disable-bias-linear --untie-embeddings-and-output-weights
    --use-flash-attn
"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS --vocab-size 32000
python tools/preprocess_data.py --tokenizer-type Llama2Tokenizer
